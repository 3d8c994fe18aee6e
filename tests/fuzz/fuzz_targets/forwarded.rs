#![no_main]

#[path = "../../outbound/any_input/forwarded.rs"]
mod forwarded;

libfuzzer_sys::fuzz_target!(|input: &[u8]| forwarded::judge(input));
