//! A worker's area of address space: its header, then its slots. Reserved at once, committed when touched.

use memmap2::{MmapMut, MmapOptions};

use crate::job::record::AREA;

/// `AREA` bytes, aligned to `AREA`, zeroed.
pub(super) struct Area {
    map: MmapMut,
}

impl Area {
    /// Reserves twice the size, as that always contains an aligned part. Costs address space only.
    pub(super) fn reserve() -> std::io::Result<Area> {
        let map = MmapOptions::new()
            .len(2 * AREA)
            .no_reserve_swap()
            .map_anon()?;
        Ok(Area { map })
    }

    /// The aligned part, with the provenance of all of it.
    pub(super) fn base(&mut self) -> *mut u8 {
        let start = self.map.as_mut_ptr();
        start.map_addr(|address| address.next_multiple_of(AREA))
    }
}
