//! Parcels and answers, as they lie in other messages.
#![no_main]

use libfuzzer_sys::fuzz_target;
use satin_runtime::job::{Answer, Offer, Parcel};

fuzz_target!(|data: &[u8]| {
    if let Ok(parcel) = postcard::from_bytes::<Parcel>(data) {
        let _ = (parcel.id.depth(), parcel.id.to_string());
        let bytes = postcard::to_stdvec(&parcel).expect("it can be written");
        assert_eq!(postcard::from_bytes::<Parcel>(&bytes).expect("read"), parcel);
    }
    if let Ok(answer) = postcard::from_bytes::<Answer>(data) {
        let bytes = postcard::to_stdvec(&answer).expect("it can be written");
        assert_eq!(postcard::from_bytes::<Answer>(&bytes).expect("read"), answer);
    }
    if let Ok(offer) = postcard::from_bytes::<Offer>(data) {
        let bytes = postcard::to_stdvec(&offer).expect("it can be written");
        assert_eq!(postcard::from_bytes::<Offer>(&bytes).expect("read"), offer);
    }
});
