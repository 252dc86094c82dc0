#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stoa_fuzz::reader(data));
