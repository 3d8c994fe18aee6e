//! The random numbers of the standard library, and the number of the process: fixed, so that a run can be repeated. The
//! crate draws the identity of a limiter and the length of its pauses from both.
//!
//! The linker prefers these functions to those of the C library. A thread draws its numbers once, so each run takes a
//! new thread.

#![allow(unsafe_code)]

use std::cell::Cell;

thread_local! {
    /// What the numbers of this thread depend on.
    pub(crate) static SEED: Cell<u8> = const { Cell::new(0) };
}

/// # Safety
///
/// As that of the C library: `buffer` has room for `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut u8, length: usize, _flags: u32) -> isize {
    // SAFETY: the caller says so.
    unsafe { buffer.write_bytes(SEED.get(), length) };
    length.cast_signed()
}

#[unsafe(no_mangle)]
extern "C" fn getpid() -> i32 {
    1
}
