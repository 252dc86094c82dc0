#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stoa_server::check_reader_frames(data));
