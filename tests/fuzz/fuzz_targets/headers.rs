#![no_main]

#[path = "../../outbound/any_input/headers.rs"]
mod headers;

libfuzzer_sys::fuzz_target!(|input: &[u8]| headers::judge(input));
