//! What a server of a store is asked, and what it answers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use satin_runtime::net::store_wire::{LENGTH, StoreRequest, decode_reply, encode_reply};

fuzz_target!(|data: &[u8]| {
    if let Some(request) = StoreRequest::decode(data) {
        let path = request.path();
        assert!(!path.starts_with('/') && !path.split('/').any(|part| part.starts_with('.')));
        if let Some(bytes) = request.encode() {
            assert_eq!(StoreRequest::decode(&bytes[LENGTH..]), Some(request));
        }
    }
    if let Some(answer) = decode_reply(data) {
        assert_eq!(decode_reply(&encode_reply(&answer)), Some(answer));
    }
});
