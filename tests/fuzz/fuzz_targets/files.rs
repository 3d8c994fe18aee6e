#![no_main]

#[path = "../../outbound/any_input/files.rs"]
mod files;

libfuzzer_sys::fuzz_target!(|input: &[u8]| files::judge(input));
