//! The names of functions, each kept once.

use std::collections::HashMap;

/// The number of functions whose names are kept: those of more have no name. Too small: functions of large programs have none. Too large: a node that
/// makes names up fills the memory.
const MAX_FUNCTIONS: usize = 1_000;

/// The names. Spans and arrows name a function by its place.
#[derive(Default)]
pub(super) struct Functions {
    names: Vec<String>,
    places: HashMap<String, u32>,
}

impl Functions {
    /// The place of that name.
    pub(super) fn place(&mut self, name: &str) -> u32 {
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        let name = match self.names.len() {
            // The last place is that of all further ones.
            MAX_FUNCTIONS => return MAX_FUNCTIONS as u32 - 1,
            last if last == MAX_FUNCTIONS - 1 => "another function",
            _ => name,
        };
        let place = self.names.len() as u32;
        self.names.push(name.into());
        self.places.insert(name.into(), place);
        place
    }

    pub(super) fn names(&self) -> &[String] {
        &self.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_functions_are_kept_once_and_not_without_end() {
        let mut functions = Functions::default();
        assert_eq!(
            ["fib", "queens", "fib"].map(|it| functions.place(it)),
            [0, 1, 0]
        );
        let last = (0..2 * MAX_FUNCTIONS).map(|number| functions.place(&number.to_string()));
        assert_eq!(last.max(), Some(MAX_FUNCTIONS as u32 - 1));
        assert_eq!(functions.names().len(), MAX_FUNCTIONS);
        assert_eq!(functions.names()[MAX_FUNCTIONS - 1], "another function");
    }
}
