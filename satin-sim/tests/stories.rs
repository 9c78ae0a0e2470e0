//! The stories of `satin-sim story` that end well, with a few seeds each.

use satin_sim::{classes::Standing, stories::STORIES};

#[test]
fn stories_end_well() {
    for story in STORIES {
        if story.standing == Standing::Tried {
            let telling = (story.tell)(0..3);
            assert_eq!(telling.wrong, None, "{}", story.name);
        }
    }
}
