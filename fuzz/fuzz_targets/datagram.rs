//! The first bytes of a datagram, as the socket sorts them before QUIC has seen them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use satin_runtime::net::first_flight;

fuzz_target!(|data: &[u8]| {
    let whole = first_flight(data);
    // What is cut off is never taken for more than it is.
    for end in 0..data.len().min(64) {
        if let Some(cut) = first_flight(&data[..end]) {
            assert_eq!(Some(cut), whole);
        }
    }
});
