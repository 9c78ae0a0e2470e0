//! The first value of each type is read back before it leaves, so that none arrives as another one.
//!
//! Postcard's bytes do not say what they are: where `Serialize` and `Deserialize` of a type disagree, the reader takes bytes of one field
//! for another. Attributes of serde make them disagree, each for a struct or a variant. So the writer looks at the names of all structs and
//! variants ([`meet`]). If one is new, the value is read back, and each struct and variant is compared with what was written. A name that
//! has gone well once is not tried again.

use std::{
    cell::{Cell, RefCell},
    collections::HashSet,
    sync::{LazyLock, PoisonError, RwLock},
};

use super::{
    fault::{self, Why},
    scoped,
};

/// A struct, or a variant of an enum, as serde names it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Shape {
    of: &'static str,
    /// Number and name of a variant.
    variant: Option<(u32, &'static str)>,
    /// The fields that are written.
    fields: u32,
}

impl Shape {
    /// A struct with so many fields.
    #[inline]
    pub(super) fn of_struct(of: &'static str, fields: usize) -> Shape {
        Shape {
            of,
            variant: None,
            fields: fields as u32,
        }
    }

    /// A variant with so many fields.
    #[inline]
    pub(super) fn of_variant(
        of: &'static str,
        index: u32,
        variant: &'static str,
        fields: usize,
    ) -> Shape {
        Shape {
            of,
            variant: Some((index, variant)),
            fields: fields as u32,
        }
    }

    /// A value as a whole.
    fn of_whole(of: &'static str) -> Shape {
        Shape::of_struct(of, usize::MAX)
    }

    /// Is it a value as a whole, and not a struct or a variant in it?
    pub(super) fn is_whole(&self) -> bool {
        self.fields == u32::MAX
    }

    /// A number that other shapes do not have: names are told apart by where they stand.
    #[inline]
    fn key(self) -> u64 {
        const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
        let mix = |key: u64, part: u64| (key ^ part).wrapping_mul(ODD).rotate_left(29);
        let (index, variant) = self.variant.unwrap_or((u32::MAX, ""));
        let numbers = u64::from(index) << 32 | u64::from(self.fields);
        let key = mix(
            self.of.as_ptr().addr() as u64,
            variant.as_ptr().addr() as u64,
        );
        mix(mix(key, numbers), self.of.len() as u64) | 1
    }
}

/// Shapes that each thread finds without a lock: as many as programs send in their inner loops.
const NEAR: usize = 256;

/// What is to become of shapes that are written on this thread.
enum Looking {
    /// They are not looked at.
    Not,
    /// Those that are new are collected.
    New(Vec<Shape>),
    /// All are collected.
    All(HashSet<Shape>),
}

thread_local! {
    static IS_LOOKING: Cell<bool> = const { Cell::new(false) };
    static LOOKING: RefCell<Looking> = const { RefCell::new(Looking::Not) };
    static NEAR_SHAPES: [Cell<u64>; NEAR] = const { [const { Cell::new(0) }; NEAR] };
    static IS_COMPARING: Cell<bool> = const { Cell::new(false) };
    /// What was to be read back mentions something that is not in this process.
    static IS_ABSENT: Cell<bool> = const { Cell::new(false) };
    /// What stands in the value that is being read back.
    static WRITTEN: RefCell<HashSet<Shape>> = RefCell::default();
    /// The enum of the variant that is about to be read.
    static ENUM: Cell<&'static str> = const { Cell::new("") };
}

static TRIED: LazyLock<RwLock<HashSet<u64>>> = LazyLock::new(RwLock::default);

/// The writer has met a struct or a variant.
#[inline]
pub(super) fn meet(shape: Shape) {
    if IS_LOOKING.get() {
        let key = shape.key();
        if near(key, Cell::get) != key {
            meet_slowly(shape, key);
        }
    }
}

/// The place near this thread where that key may stand.
#[inline]
fn near<R>(key: u64, look: impl FnOnce(&Cell<u64>) -> R) -> R {
    // All keys are odd.
    NEAR_SHAPES.with(|near| look(&near[key as usize / 2 % NEAR]))
}

#[cold]
#[inline(never)]
fn meet_slowly(shape: Shape, key: u64) {
    LOOKING.with_borrow_mut(|looking| match looking {
        Looking::Not => {}
        Looking::All(all) => _ = all.insert(shape),
        Looking::New(new) => {
            if is_tried(key) {
                near(key, |near| near.set(key));
            } else if !new.contains(&shape) {
                new.push(shape);
            }
        }
    });
}

fn is_tried(key: u64) -> bool {
    let tried = TRIED.read().unwrap_or_else(PoisonError::into_inner);
    tried.contains(&key)
}

fn looking<R>(how: Looking, write: impl FnOnce() -> R) -> (R, Looking) {
    let outer = LOOKING.replace(how);
    let written = scoped::with(&IS_LOOKING, true, write);
    (written, LOOKING.replace(outer))
}

/// Writes; gives the shapes too that are new. The type itself is one of them.
pub(super) fn new_ones<R>(of: &'static str, write: impl FnOnce() -> R) -> (R, Vec<Shape>) {
    let (written, looking) = looking(Looking::New(Vec::new()), || {
        meet(Shape::of_whole(of));
        write()
    });
    let Looking::New(new) = looking else {
        unreachable!("nobody else has replaced it");
    };
    (written, new)
}

/// Runs `run`, which writes or reads a value of its own inside of another one.
pub(super) fn apart<R>(run: impl FnOnce() -> R) -> R {
    let run = || scoped::with(&IS_COMPARING, false, run);
    scoped::with(&IS_LOOKING, false, run)
}

/// Something that the value mentions is not in this process, so it cannot be read here.
pub(super) fn is_absent() {
    IS_ABSENT.set(true);
}

/// Writes once more, and reads; compares all shapes. `None` if it cannot be read in this process.
pub(super) fn compare<R, E>(
    write: impl FnOnce(),
    read: impl FnOnce() -> Result<R, E>,
) -> Option<Result<R, E>> {
    // What is near is not collected.
    NEAR_SHAPES.with(|near| near.iter().for_each(|near| near.set(0)));
    let ((), looking) = looking(Looking::All(HashSet::new()), write);
    let Looking::All(all) = looking else {
        unreachable!("nobody else has replaced it");
    };
    let outer = WRITTEN.replace(all);
    IS_ABSENT.set(false);
    let read = scoped::with(&IS_COMPARING, true, read);
    WRITTEN.replace(outer);
    (read.is_ok() || !IS_ABSENT.get()).then_some(read)
}

/// These need not be looked at again.
pub(super) fn went_well(new: &[Shape]) {
    let mut tried = TRIED.write().unwrap_or_else(PoisonError::into_inner);
    tried.extend(new.iter().map(|shape| shape.key()));
}

/// How many fields structs and variants of one name have that were written.
pub(super) struct FieldsTrial {
    of: &'static str,
    written: Vec<u32>,
    /// An enum with `tag` and `content` writes no content for a variant without fields.
    may_lack_one: bool,
}

/// The reader is about to read the fields of a struct with that name, or, without one, of a variant of the enum that it began with last.
/// `None` if it is not known how many there are.
#[inline]
pub(super) fn of_fields(of: Option<&'static str>) -> Option<FieldsTrial> {
    IS_COMPARING.get().then(|| of_fields_now(of)).flatten()
}

#[cold]
fn of_fields_now(of: Option<&'static str>) -> Option<FieldsTrial> {
    let is_variant = of.is_none();
    let of = of.unwrap_or_else(|| ENUM.get());
    WRITTEN.with_borrow(|written| {
        let named = || written.iter().filter(|shape| shape.of == of);
        let fields = named().filter(|shape| shape.variant.is_some() == is_variant);
        let written: Vec<u32> = fields.map(|shape| shape.fields).collect();
        let may_lack_one = !is_variant && named().any(|shape| shape.variant.is_some());
        (!written.is_empty()).then_some(FieldsTrial {
            of,
            written,
            may_lack_one,
        })
    })
}

impl FieldsTrial {
    /// The most fields that can be read.
    pub(super) fn most(&self) -> usize {
        let most = self.written.iter().max().copied().unwrap_or(0) as usize;
        most + usize::from(self.may_lack_one)
    }

    /// Were so many fields written as have been read? What is wrong is noted.
    pub(super) fn is_as_written(&self, read: usize) -> bool {
        let is_it = |written: &u32| {
            let written = *written as usize;
            written == read || (self.may_lack_one && written + 1 == read)
        };
        let is_as_written = self.written.iter().any(is_it);
        if let Some(&written) = self.written.first()
            && !is_as_written
        {
            fault::note(Why::Fields { written, read }, self.of, "");
        }
        is_as_written
    }
}

/// The reader is about to read an enum of these variants. False if a variant that was written is another one there.
#[inline]
pub(super) fn expects_enum(of: &'static str, variants: &'static [&'static str]) -> bool {
    !IS_COMPARING.get() || is_enum_as_written(of, variants)
}

#[cold]
fn is_enum_as_written(of: &'static str, variants: &'static [&'static str]) -> bool {
    ENUM.set(of);
    WRITTEN.with_borrow(|written| {
        let of_enum = |shape: &&Shape| shape.of == of;
        let wrong = written.iter().filter(of_enum).find_map(|shape| {
            let (index, variant) = shape.variant?;
            (variants.get(index as usize) != Some(&variant)).then_some(variant)
        });
        if let Some(variant) = wrong {
            fault::note(Why::Variant, of, variant);
        }
        wrong.is_none()
    })
}
