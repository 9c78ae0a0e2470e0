//! The stories of `satin-sim story` that end well, with a few seeds each.

use satin_sim::{classes::Standing, stories::STORIES};

#[test]
fn stories_end_well() {
    for story in STORIES {
        if story.standing == Standing::Tried {
            let seeds = match story.name {
                // Of these many runs went right also when they could go wrong.
                "burst" => 40,
                // A mean is required.
                "cut" => 8,
                _ => 3,
            };
            let telling = (story.tell)(0..seeds);
            assert_eq!(telling.wrong, None, "{}", story.name);
        }
    }
}
