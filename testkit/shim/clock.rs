//! Preloaded into one server process: shifts its wall clock by the microseconds in a mapped file, or stops
//! it at the microseconds behind them, unless those are zero.
//!
//! Built by the test kit with `rustc --crate-type cdylib`; not part of any crate. The kernel is asked directly, because
//! looking up the original functions allocates, and an allocator that asks for the time would then recurse.

use std::ffi::{c_char, c_int, c_long, c_void};
use std::ptr;
use std::sync::atomic::{AtomicI64, AtomicPtr, Ordering};

#[cfg(target_arch = "x86_64")]
const SYS_CLOCK_GETTIME: c_long = 228;
#[cfg(target_arch = "aarch64")]
const SYS_CLOCK_GETTIME: c_long = 113;

const CLOCK_REALTIME: c_int = 0;
const CLOCK_REALTIME_COARSE: c_int = 5;
const O_RDONLY: c_int = 0;
const PROT_READ: c_int = 1;
const MAP_SHARED: c_int = 1;

#[repr(C)]
pub struct Timespec {
    seconds: i64,
    nanos: i64,
}

#[repr(C)]
pub struct Timeval {
    seconds: i64,
    micros: i64,
}

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn getenv(name: *const c_char) -> *const c_char;
    fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    fn mmap(at: *mut c_void, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void;
}

/// The offset, and the time of a stopped clock.
type Setting = [AtomicI64; 2];

static SETTING: AtomicPtr<Setting> = AtomicPtr::new(ptr::null_mut());
static NONE: Setting = [AtomicI64::new(0), AtomicI64::new(0)];

/// Both in microseconds. The file stays mapped and open for the life of the process.
unsafe fn setting() -> (i64, i64) {
    let mut place = SETTING.load(Ordering::Acquire);
    if place.is_null() {
        place = (&raw const NONE).cast_mut();
        let path = unsafe { getenv(c"TENURE_CLOCK_FILE".as_ptr()) };
        if !path.is_null() {
            let fd = unsafe { open(path, O_RDONLY) };
            let page = unsafe { mmap(ptr::null_mut(), 16, PROT_READ, MAP_SHARED, fd, 0) };
            if fd >= 0 && page as isize != -1 {
                place = page.cast();
            }
        }
        SETTING.store(place, Ordering::Release);
    }
    let [offset, stands] = unsafe { &*place };
    (offset.load(Ordering::Relaxed), stands.load(Ordering::Relaxed))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: c_int, out: *mut Timespec) -> c_int {
    let result = unsafe { syscall(SYS_CLOCK_GETTIME, clock, out) } as c_int;
    if result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) {
        let time = unsafe { &mut *out };
        let (offset, stands) = unsafe { setting() };
        if stands != 0 {
            (time.seconds, time.nanos) = (stands / 1_000_000, stands % 1_000_000 * 1000);
        } else {
            let shifted = time.nanos + offset % 1_000_000 * 1000;
            time.seconds += offset / 1_000_000 + shifted.div_euclid(1_000_000_000);
            time.nanos = shifted.rem_euclid(1_000_000_000);
        }
    }
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gettimeofday(out: *mut Timeval, _zone: *mut c_void) -> c_int {
    let mut now = Timespec { seconds: 0, nanos: 0 };
    let result = unsafe { clock_gettime(CLOCK_REALTIME, &mut now) };
    unsafe { *out = Timeval { seconds: now.seconds, micros: now.nanos / 1000 } };
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn time(out: *mut i64) -> i64 {
    let mut now = Timespec { seconds: 0, nanos: 0 };
    unsafe { clock_gettime(CLOCK_REALTIME, &mut now) };
    if !out.is_null() {
        unsafe { *out = now.seconds };
    }
    now.seconds
}
