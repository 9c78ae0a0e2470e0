//! Arithmetic of figures: the middle and the spread of several runs, and how long a run would take at best.

use std::fmt;

use statrs::distribution::{ContinuousCDF, StudentsT};

/// The middle one, in order of size; of an even number the mean of the two in the middle.
///
/// # Panics
/// No value is given.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    Spread::of(values).median
}

/// The middle one of those that are there.
pub fn median_of_some(values: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    let values: Vec<f64> = values.into_iter().flatten().collect();
    (!values.is_empty()).then(|| median(values))
}

/// The spread of values.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    /// The smallest value.
    pub min: f64,
    /// A quarter of the values is below.
    pub lower: f64,
    /// The median, see [`median`].
    pub median: f64,
    /// A quarter of the values is above.
    pub upper: f64,
    /// The largest value.
    pub max: f64,
}

impl Spread {
    /// # Panics
    /// If there are no values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Spread {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let last = values.len() - 1;
        Spread {
            min: values[0],
            lower: values[last / 4],
            median: (values[last / 2] + values[values.len() / 2]) / 2.0,
            upper: values[last - last / 4],
            max: values[last],
        }
    }
}

/// What ratios say that were measured one by one: their geometric mean, and where the true one lies: `1.02 (0.98..1.06)`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ratio {
    /// The geometric mean.
    pub mean: f64,
    /// With 95 % the true ratio is not below; 0 if there is one value only.
    pub low: f64,
    /// With 95 % the true ratio is not above; infinite if there is one value only.
    pub high: f64,
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ratio { mean, low, high } = self;
        write!(f, "{mean:.2}")?;
        match high.is_finite() {
            true => write!(f, " ({low:.2}..{high:.2})"),
            false => Ok(()),
        }
    }
}

impl Ratio {
    /// `None` if there are no values. They are positive.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Ratio> {
        let logs: Vec<f64> = values.into_iter().map(f64::ln).collect();
        let count = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / count;
        let spread = match StudentsT::new(0.0, 1.0, count - 1.0) {
            Ok(student) => {
                let squares = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>();
                student.inverse_cdf(0.975) * (squares / (count - 1.0) / count).sqrt()
            }
            Err(_) => f64::INFINITY, // one value says nothing of others
        };
        (!logs.is_empty()).then(|| Ratio {
            mean: mean.exp(),
            low: (mean - spread).exp(),
            high: (mean + spread).exp(),
        })
    }
}

/// The time that work takes which took `undisturbed` with as many workers as there are in the first phase, if no work is lost
/// and none is idle. A phase is the time at which it begins and the number of workers from then on; the first begins at 0.
///
/// # Panics
/// No phase is given, or no node is left in the last.
pub fn ideal(undisturbed: f64, phases: &[(f64, f64)]) -> f64 {
    let mut left = undisturbed * phases[0].1;
    for (index, &(begin, workers)) in phases.iter().enumerate() {
        let end = (phases.get(index + 1)).map_or(f64::INFINITY, |&(end, _)| end.max(begin));
        let done = (end - begin) * workers;
        if workers > 0.0 && left <= done {
            return begin + left / workers;
        }
        left -= done;
    }
    panic!("nobody is left to do the work");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_spread() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([2.0, 1.0]), 1.5);
        assert_eq!(median_of_some([None, Some(1.0), None]), Some(1.0));
        assert_eq!(median_of_some([None, None]), None);
        let spread = Spread::of([9.0, 1.0, 3.0, 7.0, 5.0]);
        let expected = Spread {
            min: 1.0,
            lower: 3.0,
            median: 5.0,
            upper: 7.0,
            max: 9.0,
        };
        assert_eq!(spread, expected);
        assert_eq!(Spread::of([4.0]).upper, 4.0);
    }

    #[test]
    fn ratios_have_a_mean_and_bounds() {
        let round = |figure: f64| (figure * 1000.0).round() / 1000.0;
        let of = |values: &[f64]| {
            Ratio::of(values.iter().copied())
                .map(|ratio| [ratio.mean, ratio.low, ratio.high].map(round))
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[2.0]), Some([2.0, 0.0, f64::INFINITY]));
        assert_eq!(of(&[0.5, 2.0, 0.5, 2.0]), Some([1.0, 0.28, 3.574]));
        assert_eq!(of(&[1.1; 5]), Some([1.1; 3]));
    }

    #[test]
    fn the_rest_of_the_work_is_stretched_for_those_who_are_gone() {
        // 16 workers, 20 s; after half of it 4 are gone: 10 s of 16 workers are 13.3 s of 12.
        let site = ideal(20.0, &[(0.0, 16.0), (10.0, 12.0)]);
        assert!((site - (10.0 + 160.0 / 12.0)).abs() < 1e-9, "{site}");
        assert_eq!(ideal(20.0, &[(0.0, 16.0)]), 20.0);
        // Too late to matter.
        assert_eq!(ideal(20.0, &[(0.0, 16.0), (20.0, 1.0)]), 20.0);
        assert_eq!(ideal(20.0, &[(0.0, 16.0), (25.0, 0.0)]), 20.0);
    }

    #[test]
    fn those_who_come_help_until_others_go() {
        // For 2 s both sets are there, and 4 s of a set's work are done.
        let moved = ideal(40.0, &[(0.0, 4.0), (20.0, 8.0), (22.0, 4.0)]);
        assert!((moved - 38.0).abs() < 1e-9, "{moved}");
    }
}
