//! How things are written on the command line.

use std::{ops::Range, str::FromStr, time::Duration};

use satin_runtime::node::{
    Rule,
    cluster::{FlowForm, Shape},
};
use strum::VariantNames;

use crate::{
    classes::{CLASSES, Class},
    stories::{STORIES, Story},
};

/// Parses a duration such as `10ms`, `1.5s`, `200us`.
///
/// # Errors
/// The text is no duration; the error says what one looks like.
pub fn duration(text: &str) -> Result<Duration, String> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let scale = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return Err("a duration is a number with us, ms or s, such as 30ms".into()),
    };
    let number = text[..text.len() - unit.len()].parse::<f64>();
    let number = number.map_err(|error| format!("{text}: {error}"))?;
    Duration::try_from_secs_f64(number * scale).map_err(|error| format!("{text}: {error}"))
}

/// Parses a shape: `knary:WIDTH,HEIGHT[,SERIAL]`, `uts:BRANCHING,HEIGHT`, `flat:JOBS`, `random:WIDTH,HEIGHT[,RACES]`, or a flow of `WIDTH` pieces
/// of data and `STEPS` steps: `flow:WIDTH,STEPS[,HEIGHT]`, or the same with the name of a form, see [`FlowForm`], such as `lu:4,4`.
///
/// # Errors
/// The text is no shape; the error says what one looks like.
pub fn shape(text: &str) -> Result<Shape, String> {
    let (kind, numbers) = text.split_once(':').unwrap_or((text, ""));
    let numbers: Result<Vec<f64>, _> = numbers.split(',').map(str::parse).collect();
    let numbers = numbers.unwrap_or_default();
    let shape = match (kind, &numbers[..]) {
        ("knary", [width, height]) => knary(*width, *height, 0.0),
        ("knary", [width, height, serial]) if serial <= width => knary(*width, *height, *serial),
        ("uts", [branching, height]) => Shape::Uts {
            branching: *branching,
            height: *height as u32,
        },
        ("flat", [jobs]) => Shape::Flat { jobs: *jobs as u32 },
        ("random", [width, height]) => random(*width, *height, 0.0),
        ("random", [width, height, races]) => random(*width, *height, *races),
        (form, [width, steps]) => flow(form, *width, *steps, 1.0).ok_or(NO_SHAPE)?,
        (form, [width, steps, height]) => flow(form, *width, *steps, *height).ok_or(NO_SHAPE)?,
        _ => return Err(NO_SHAPE.into()),
    };
    Ok(shape)
}

const NO_SHAPE: &str = "a shape is knary:WIDTH,HEIGHT[,SERIAL], uts:BRANCHING,HEIGHT, flat:JOBS, random:WIDTH,HEIGHT[,RACES] or \
    flow:WIDTH,STEPS[,HEIGHT]; for flows of one form chains, wavefront, lu or dice stands in the place of flow";

fn flow(form: &str, width: f64, steps: f64, height: f64) -> Option<Shape> {
    let form = match form {
        "flow" => None,
        form => Some(form.parse::<FlowForm>().ok()?),
    };
    Some(Shape::Flow {
        form,
        width: width as u32,
        steps: steps as u32,
        height: height as u32,
    })
}

fn knary(width: f64, height: f64, serial: f64) -> Shape {
    Shape::Knary {
        width: width as u32,
        height: height as u32,
        serial: serial as u32,
    }
}

fn random(width: f64, height: f64, races: f64) -> Shape {
    Shape::Random {
        width: width as u32,
        height: height as u32,
        races: races as u32,
    }
}

/// `A..B`, without B; `N` is `0..N`.
///
/// # Errors
/// The text is no range of seeds; the error says what one looks like.
pub fn seeds(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").unwrap_or(("0", text));
    match (from.parse(), to.parse()) {
        (Ok(from), Ok(to)) if from < to => Ok(from..to),
        _ => Err("seeds are a range such as 0..5000, which is without 5000".into()),
    }
}

/// A value that is known by its name: a steal policy, a rule of repair.
///
/// # Errors
/// The text is none of the names; the error lists them.
pub fn named<T: FromStr + VariantNames>(text: &str) -> Result<T, String> {
    (text.parse()).map_err(|_| format!("expected one of {}", T::VARIANTS.join(", ")))
}

/// The story of that name.
///
/// # Errors
/// The text is none of the names; the error lists them.
pub fn story(text: &str) -> Result<Story, String> {
    let found = STORIES.iter().find(|story| story.name == text);
    found.copied().ok_or_else(|| {
        let names = STORIES.map(|story| story.name);
        format!("a story is one of {}", names.join(", "))
    })
}

/// A rule or a class that a trial may go without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// A rule of repair.
    Rule(Rule),
    /// A class of faults.
    Class(Class),
}

/// The class of faults of that name.
///
/// # Errors
/// The text is none of the names; the error lists them.
pub fn class(text: &str) -> Result<Class, String> {
    let found = CLASSES.iter().find(|about| about.name == text);
    found.map(|about| about.class).ok_or_else(|| {
        let names: Vec<&str> = CLASSES.iter().map(|about| about.name).collect();
        format!("a class of faults is one of {}", names.join(", "))
    })
}

/// A rule of repair, or a class of faults.
///
/// # Errors
/// The text is none of the names; the error lists them.
pub fn left(text: &str) -> Result<Left, String> {
    let rule_or = |error| match class(text) {
        Ok(class) => Ok(Left::Class(class)),
        Err(more) => Err(format!("a rule: {error}; {more}")),
    };
    named(text).map(Left::Rule).or_else(rule_or)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(duration("1.5ms"), Ok(Duration::from_micros(1500)));
        assert!(duration("15").is_err() && duration("ms").is_err() && duration("-1s").is_err());
    }

    #[test]
    fn seeds_are_a_range() {
        assert_eq!(seeds("3..7"), Ok(3..7));
        assert_eq!(seeds("7"), Ok(0..7));
        assert!(seeds("7..3").is_err() && seeds("..").is_err() && seeds("x").is_err());
    }

    #[test]
    fn what_is_left_out_has_one_name() {
        for about in CLASSES {
            assert_eq!(left(about.name), Ok(Left::Class(about.class)));
        }
        for rule in <Rule as strum::VariantArray>::VARIANTS {
            assert_eq!(left(&rule.to_string()), Ok(Left::Rule(*rule)));
        }
        assert!(left("nothing").is_err());
    }

    #[test]
    fn shapes_have_their_numbers() {
        assert_eq!(shape("flat:7"), Ok(Shape::Flat { jobs: 7 }));
        assert_eq!(shape("knary:4,7"), Ok(knary(4.0, 7.0, 0.0)));
        assert!(shape("knary:4").is_err() && shape("tree").is_err());
        let lu = Shape::Flow {
            form: Some(FlowForm::Lu),
            width: 4,
            steps: 3,
            height: 1,
        };
        assert_eq!(shape("lu:4,3"), Ok(lu));
        assert_eq!(
            shape("flow:4,3,2"),
            Ok(flow("flow", 4.0, 3.0, 2.0).expect("a form"))
        );
        assert!(shape("lu:4").is_err() && shape("qr:4,3").is_err());
    }
}
