
return {known = known, expect = expect, wake_if_sooner = wake_if_sooner}
