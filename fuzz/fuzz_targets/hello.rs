//! The greeting: what is understood is understood again after it has been written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use satin_runtime::net::wire::Greeting;

fuzz_target!(|data: &[u8]| {
    let _ = Greeting::decode(data);
    // The magic is not for the fuzzer to guess.
    for kind in [0, 1] {
        let greeting = [b"satin\x01\0", &[kind][..], data].concat();
        if let Ok(greeting) = Greeting::decode(&greeting) {
            let frame = greeting.encode();
            assert_eq!(Greeting::decode(&frame[4..]), Ok(greeting));
        }
    }
});
