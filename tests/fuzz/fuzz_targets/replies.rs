#![no_main]

#[path = "../../outbound/any_input/replies.rs"]
mod replies;

libfuzzer_sys::fuzz_target!(|input: &[u8]| replies::judge(input));
