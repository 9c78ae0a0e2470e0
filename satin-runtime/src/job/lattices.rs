//! Questions of the layers that carry values as bytes to the layer that knows their types.

use super::{BoundName, ValueName};

/// Questions of the node to the process it lives in: how bounds are joined (it knows their values as bytes only), and which
/// values are here.
pub trait Lattices {
    /// The better of two values of a bound, or `None` if the first is as good as the join.
    fn join(&self, bound: BoundName, have: &[u8], new: &[u8]) -> Option<Vec<u8>>;

    /// The number of bytes of that shared value, if it is in the store of this process.
    fn value_size(&self, name: ValueName) -> Option<u64> {
        let _ = name;
        None
    }

    /// Is that shared value in the store of this process?
    fn holds(&self, name: ValueName) -> bool {
        self.value_size(name).is_some()
    }
}
