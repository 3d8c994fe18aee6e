//! A library that shifts the wall clock of the process started with it (`LD_PRELOAD`), by the
//! seconds in a file that is read at each call. Not a part of the crate: the tests compile it
//! (`super::clock`).
//!
//! Nothing here allocates or locks, as a process may ask for the time within its allocator. If the
//! file cannot be read, the process is aborted rather than served the right time.

use std::ffi::{c_char, c_int, c_long, c_void};
use std::mem::transmute;
use std::process::abort;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

const REALTIME: c_int = 0;
const REALTIME_COARSE: c_int = 5;
const READ_ONLY: c_int = 0;

/// Seconds and nanoseconds, or seconds and microseconds.
#[repr(C)]
pub struct Time {
    seconds: c_long,
    fraction: c_long,
}

type ClockGettime = unsafe extern "C" fn(c_int, *mut Time) -> c_int;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn getenv(name: *const c_char) -> *const c_char;
    fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    fn read(file: c_int, bytes: *mut c_void, size: usize) -> isize;
    fn close(file: c_int) -> c_int;
}

/// The function of the same name that is behind ours.
fn real_clock_gettime() -> ClockGettime {
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    /// `RTLD_NEXT`
    const BEHIND_US: *mut c_void = -1_isize as *mut c_void;
    let mut found = FOUND.load(Ordering::Relaxed);
    if found.is_null() {
        // SAFETY: the name is a C string; the handle is the one that means the next library.
        found = unsafe { dlsym(BEHIND_US, c"clock_gettime".as_ptr()) };
        if found.is_null() {
            abort();
        }
        FOUND.store(found, Ordering::Relaxed);
    }
    // SAFETY: it is not null, and the C library's function of this name has this type.
    unsafe { transmute::<*mut c_void, ClockGettime>(found) }
}

/// By how many seconds the clock is off now.
fn offset() -> c_long {
    let mut bytes = [0; size_of::<i64>()];
    // SAFETY: the name is a C string, and so is what `getenv` finds: a server changes its environment
    // only as it starts, before it has threads. No more is read than there is room for.
    let count = unsafe {
        let path = getenv(c"TOLLGATE_CLOCK".as_ptr());
        if path.is_null() {
            abort();
        }
        let file = open(path, READ_ONLY);
        let count = read(file, bytes.as_mut_ptr().cast(), bytes.len());
        close(file);
        count
    };
    if usize::try_from(count) != Ok(bytes.len()) {
        abort();
    }
    c_long::try_from(i64::from_ne_bytes(bytes)).unwrap_or_else(|_| abort())
}

fn now() -> Time {
    let mut now = Time { seconds: 0, fraction: 0 };
    // SAFETY: it writes to a place of ours.
    if unsafe { clock_gettime(REALTIME, &mut now) } != 0 {
        abort();
    }
    now
}

/// # Safety
///
/// As of the C library's: `time` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: c_int, time: *mut Time) -> c_int {
    // SAFETY: the caller's promise is the one that is asked for.
    let status = unsafe { real_clock_gettime()(clock, time) };
    if status == 0 && matches!(clock, REALTIME | REALTIME_COARSE) {
        // SAFETY: it has just been written to.
        unsafe { (*time).seconds += offset() };
    }
    status
}

/// # Safety
///
/// As of the C library's: `time` is null or can be written to. No time zone is written, as in other
/// implementations.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gettimeofday(time: *mut Time, _zone: *mut c_void) -> c_int {
    if !time.is_null() {
        let Time { seconds, fraction } = now();
        // SAFETY: the caller's promise.
        unsafe { time.write(Time { seconds, fraction: fraction / 1_000 }) };
    }
    0
}

/// # Safety
///
/// As of the C library's: `seconds` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn time(seconds: *mut c_long) -> c_long {
    let now = now().seconds;
    if !seconds.is_null() {
        // SAFETY: the caller's promise.
        unsafe { seconds.write(now) };
    }
    now
}
