-- What a driver asks when it connects. The last of all: what is here is whole.
DROP PROCEDURE IF EXISTS tenure_about
//
CREATE PROCEDURE tenure_about()
BEGIN
  SELECT {version}, CONCAT(@@GLOBAL.read_only) NOT IN ('0', 'OFF');
END
