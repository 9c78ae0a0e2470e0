//! A message: what is understood is understood again after it has been written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use satin_runtime::net::{
    packed::Body,
    wire::{decode, decode_large, encode},
};

fuzz_target!(|data: &[u8]| {
    // A stream of a message of its own, in two pieces.
    let mut body = Body::default();
    let (first, second) = data.split_at(data.len() / 2);
    let pushed = body.push(first).and_then(|()| body.push(second));
    if let Ok(message) = pushed.and_then(|()| body.finish()) {
        let _ = decode_large(&message);
    }
    if let Ok(message) = decode(data) {
        assert_eq!(decode_large(&data.to_vec().into()).as_ref(), Ok(&message));
        assert_eq!(decode(&encode(&message)), Ok(message));
    }
});
