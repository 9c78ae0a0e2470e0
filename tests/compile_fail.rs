//! Programs that must not compile, one per error of the macros, and the racy ones: each message says what to write instead.
#![cfg(not(feature = "serial"))]

#[test]
fn errors_say_what_to_write_instead() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
