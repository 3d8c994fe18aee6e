#![no_main]

#[path = "../../outbound/any_input/policies/mod.rs"]
mod policies;

libfuzzer_sys::fuzz_target!(|input: &[u8]| policies::judge(input));
