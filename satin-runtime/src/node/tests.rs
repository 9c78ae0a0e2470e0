//! What holds for all of the protocol.

use std::{fs, path::Path};

/// "No socket, no clock, no thread, no randomness of its own", and nothing whose order differs from run to run.
#[test]
fn the_protocol_keeps_its_promise() {
    let forbidden = [
        concat!("std::time::", "Instant"),
        concat!("Instant", "::now"),
        concat!("System", "Time"),
        concat!("std::", "thread"),
        concat!("thread", "::spawn"),
        concat!("Hash", "Map"),
        concat!("Hash", "Set"),
        concat!("std::", "env"),
        concat!("Udp", "Socket"),
        concat!("Tcp", "Stream"),
        concat!("tok", "io"),
        concat!("rand::", "rng("),
        concat!("thread", "_rng"),
        concat!("OsR", "ng"),
    ];
    let files = sources("");
    assert!(files.len() > 10, "the source of the protocol was not found");
    for (path, text) in files {
        for word in forbidden {
            assert!(!text.contains(word), "{word} in {path}");
        }
    }
}

/// Who asks whom for work, and what becomes of a job then, are told apart; both keep the books, which know neither.
#[test]
fn stealing_and_repair_know_nothing_of_each_other() {
    for (room, others) in [
        ("steal", &["repair::", "Repair", "cx.table"][..]),
        ("repair", &["steal::", "Steal", "Thief", "Victim"]),
        ("books", &["repair::", "steal::"]),
    ] {
        let files = sources(room);
        assert!(!files.is_empty(), "{room}");
        for (path, text) in files {
            let is_test = path.ends_with("tests.rs") || path.ends_with("stories.rs");
            let code = text
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"));
            for line in code.filter(|_| !is_test) {
                let stranger = others.iter().find(|other| line.contains(**other));
                assert_eq!(stranger, None, "{path}: {line}");
            }
        }
    }
}

/// The files of a room of this layer, or of all of it: their paths and texts.
fn sources(room: &str) -> Vec<(String, String)> {
    let mut folders = vec![
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("src/node")
            .join(room),
    ];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the source is here") {
            let path = entry.expect("a folder can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("source is text");
                files.push((path.display().to_string(), text));
            }
        }
    }
    files
}
