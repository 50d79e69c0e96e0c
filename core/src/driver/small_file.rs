//! Files that a URL names.

use std::io;

use crate::value::error::{Error, ErrorKind, Result};

/// The most bytes of such a file. All authorities of a system are a quarter of it.
const LARGEST: u64 = 1 << 20;

/// Reads the file of a parameter, unless it is a device, a pipe or a directory, or too large.
pub(super) fn read(name: &str, path: &str) -> Result<Vec<u8>> {
    let cannot = |error: io::Error| refused(format!("cannot read the file of {name}")).with_source(error);
    let what = std::fs::metadata(path).map_err(cannot)?;
    if !what.is_file() {
        return Err(refused(format!("the file of {name} is no regular file")));
    }
    if what.len() > LARGEST {
        return Err(refused(format!("the file of {name} is of {} bytes, more than {LARGEST}", what.len())));
    }
    std::fs::read(path).map_err(cannot)
}

fn refused(text: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_regular_file_of_a_sensible_size_is_read() {
        let file = std::env::temp_dir().join(format!("tenure-file-{}", std::process::id()));
        let path = file.display().to_string();
        std::fs::write(&file, "pem").unwrap();
        assert_eq!(read("ca", &path).unwrap(), b"pem");
        std::fs::File::create(&file).unwrap().set_len(LARGEST + 1).unwrap();
        for (path, word) in [(&*path, "bytes"), ("/dev/zero", "no regular file"), ("/", "no regular file")] {
            let error = read("ca", path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().contains(word), "{error}");
        }
        std::fs::remove_file(&file).unwrap();
    }
}
