#![no_main]

#[path = "../../outbound/any_input/text.rs"]
mod text;

libfuzzer_sys::fuzz_target!(|input: &[u8]| text::judge(input));
