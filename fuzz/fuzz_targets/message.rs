//! A message: what is understood is understood again after it has been written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use satin_runtime::net::wire::{decode, decode_large, encode};

fuzz_target!(|data: &[u8]| {
    if let Ok(message) = decode(data) {
        assert_eq!(decode_large(&data.to_vec().into()).as_ref(), Ok(&message));
        assert_eq!(decode(&encode(&message)), Ok(message));
    }
});
