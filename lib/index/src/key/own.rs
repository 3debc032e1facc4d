//! Users' own types as keys, without `unsafe`.

use super::KeyPart;
use super::part::{Encoded, PartBuffer};

/// A type that is a key because another key represents it. A newtype is represented by the key that it wraps, a struct
/// by the tuple of its fields, and an `enum` by its discriminant. Implementing this trait makes the type a
/// [`Key`](crate::Key) and a part of other keys; [`key!`](crate::key!) writes the implementation.
///
/// Keys have the order of the keys that represent them, and a scan shows the representing key: `&str` for a type
/// represented by a `String`. So [`from_key`](Self::from_key) must be the inverse of [`as_key`](Self::as_key), and
/// [`as_key`](Self::as_key) must return equal results for two values that are the same key. If an implementation breaks
/// this rule, the map's order is unexpected or it returns other keys, but no undefined behaviour follows.
///
/// An implementation consists of one type and two functions. In this example, names are ordered and looked up without
/// regard to upper and lower case:
///
/// ```
/// use archipelago::index::{HydraList, KeyAs};
///
/// #[derive(Clone, Debug, PartialEq)]
/// struct AnyCase(String);
///
/// impl AnyCase {
///     fn new(name: &str) -> Self {
///         Self(name.to_lowercase())
///     }
/// }
///
/// impl KeyAs for AnyCase {
///     type Key = String;
///     fn as_key(&self) -> &str {
///         &self.0
///     }
///     fn from_key(folded: String) -> Self {
///         Self(folded)
///     }
/// }
///
/// let map = HydraList::new();
/// let map = map.pin();
/// // What a name was spelt like is no part of the key: keep it with the value.
/// map.insert(AnyCase::new("Zürich"), ("Zürich", 1));
/// map.insert(AnyCase::new("aarau"), ("aarau", 2));
/// assert_eq!(map.get(&AnyCase::new("ZÜRICH")), Some(("Zürich", 1)));
/// assert_eq!(map.first_key_value().unwrap().1, ("aarau", 2));
/// ```
///
/// To use an order that a library defines, put the library's sort key before the text that it orders. In this example,
/// the sort keys (of a stand-in for a collator) define the order, and the spelling decides only between texts with
/// equal sort keys:
///
/// ```
/// use archipelago::index::{Art, KeyAs};
///
/// #[derive(Clone, Debug, PartialEq)]
/// struct Collated {
///     sort_key: Vec<u8>,
///     text: String,
/// }
///
/// impl Collated {
///     fn new(text: &str) -> Self {
///         let plain = |c| match c { 'ä' => 'a', 'ö' => 'o', 'ü' => 'u', other => other };
///         let sort_key = text.to_lowercase().chars().map(plain).collect::<String>().into_bytes();
///         Self { sort_key, text: text.to_owned() }
///     }
/// }
///
/// impl KeyAs for Collated {
///     type Key = (Vec<u8>, String);
///     fn as_key(&self) -> (&[u8], &str) {
///         (&self.sort_key, &self.text)
///     }
///     fn from_key((sort_key, text): (Vec<u8>, String)) -> Self {
///         Self { sort_key, text }
///     }
/// }
///
/// let map: Art<Collated, ()> = ["Zug", "Öl", "Oel", "oben"].map(|text| (Collated::new(text), ())).into();
/// let texts: Vec<String> = map.pin().iter().map(|(key, ())| key.text).collect();
/// assert_eq!(texts, ["oben", "Oel", "Öl", "Zug"]);
/// ```
///
/// An `enum` with data is represented by one `Option` for each variant with data:
///
/// ```
/// use archipelago::index::KeyAs;
///
/// #[derive(Clone)]
/// enum Id {
///     Number(u64),
///     Name(String),
/// }
///
/// impl KeyAs for Id {
///     type Key = (Option<String>, Option<u64>);
///     fn as_key(&self) -> (Option<&str>, Option<u64>) {
///         match self {
///             Id::Number(number) => (None, Some(*number)),
///             Id::Name(name) => (Some(name), None),
///         }
///     }
///     fn from_key(key: (Option<String>, Option<u64>)) -> Self {
///         match key {
///             (Some(name), _) => Id::Name(name),
///             (None, number) => Id::Number(number.unwrap_or_default()),
///         }
///     }
/// }
/// ```
///
/// To look such keys up [`by_parts`](crate::by_parts), add `impl<'a> Borrow<dyn Parts<Id> + 'a> for Id { fn
/// borrow(&self) -> &(dyn Parts<Id> + 'a) { self } }`. If a type wraps an unchanged `String`, add `impl Borrow<str>` to
/// look it up by `&str`.
///
/// A type that is not declared by [`key!`](crate::key!) and does not implement this trait is not a key:
///
/// ```compile_fail,E0277
/// #[derive(Clone)]
/// struct Name(String);
///
/// let map: archipelago::HydraList<Name, u64> = Default::default();
/// ```
///
/// An `as_key` that does not return the borrowed form of `Key` does not compile:
///
/// ```compile_fail,E0053
/// #[derive(Clone)]
/// struct Name(String);
///
/// impl archipelago::index::KeyAs for Name {
///     type Key = String;
///     fn as_key(&self) -> &[u8] {
///         self.0.as_bytes()
///     }
///     fn from_key(name: String) -> Self {
///         Self(name)
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no key of an ordered map",
    label = "no key, and nothing that a key is looked up by",
    note = "a type of your own becomes a key by `archipelago::index::key!`, or by implementing `KeyAs`",
    note = "bounds of ranges are keys (`range(\"a\".to_string()..)`), or borrowed and named one by one: \
            `range::<str, _>((Included(\"a\"), Unbounded))`"
)]
pub trait KeyAs: Clone + Send + Sync + 'static {
    /// The key that represents this type.
    type Key: KeyPart;

    /// Returns the representing key, borrowed.
    fn as_key(&self) -> <Self::Key as KeyPart>::Borrowed<'_>;

    /// Makes a value from its representing key. It is the inverse of [`as_key`](Self::as_key).
    fn from_key(key: Self::Key) -> Self;
}

// SAFETY: all bytes are written and read by `T::Key`; the user's code only chooses which key this is.
unsafe impl<T: KeyAs> KeyPart for T {
    type Width = <T::Key as KeyPart>::Width;
    type Borrowed<'a> = <T::Key as KeyPart>::Borrowed<'a>;
    type Part<'a> = <T::Key as KeyPart>::Part<'a>;
    type Whole<'a> = <T::Key as KeyPart>::Whole<'a>;

    #[inline(always)]
    fn lend(&self) -> Self::Borrowed<'_> {
        self.as_key()
    }

    #[inline(always)]
    fn word(part: Self::Borrowed<'_>) -> u64 {
        T::Key::word(part)
    }

    #[inline(always)]
    unsafe fn of_word<'a>(word: u64) -> Self::Part<'a> {
        // SAFETY: the caller guarantees the same contract.
        unsafe { T::Key::of_word(word) }
    }

    #[inline]
    fn write(part: Self::Borrowed<'_>, last: bool, to: &mut PartBuffer) {
        T::Key::write(part, last, to);
    }

    #[inline]
    unsafe fn read<'a>(from: &mut Encoded<'a>, last: bool) -> Self::Part<'a> {
        // SAFETY: the caller guarantees the same contract.
        unsafe { T::Key::read(from, last) }
    }

    #[inline]
    fn own(part: Self::Part<'_>) -> Self {
        T::from_key(T::Key::own(part))
    }

    #[inline(always)]
    fn alone(part: Self::Part<'_>) -> Self::Whole<'_> {
        T::Key::alone(part)
    }

    #[inline(always)]
    fn with_bytes<R>(part: Self::Borrowed<'_>, f: impl FnOnce(&[u8]) -> R) -> R {
        T::Key::with_bytes(part, f)
    }
}

/// Declares types and makes them keys: newtypes, structs of up to eight fields, `enum`s without data.
///
/// ```
/// use archipelago::index::{HydraList, by_parts, key};
///
/// key! {
///     /// As fast as a `u64`.
///     #[derive(Clone, Copy, Debug, PartialEq)]
///     pub struct UserId(u64);
///
///     #[derive(Clone, Copy, Debug, PartialEq)]
///     pub enum Kind {
///         Draft,
///         Letter = 7,
///     }
///
///     /// Ordered by sender, then by kind, then by title.
///     #[derive(Clone, Debug, PartialEq)]
///     pub struct Document {
///         pub sender: UserId,
///         kind: Kind,
///         title: String,
///     }
/// }
///
/// let map = HydraList::new();
/// let map = map.pin();
/// let document = Document { sender: UserId(3), kind: Kind::Letter, title: "Hello".to_owned() };
/// map.insert(document.clone(), "the text");
/// assert_eq!(map.get(&document), Some("the text"));
/// // By borrowed parts: what the fields stand for.
/// assert_eq!(map.get(by_parts(&(3, Kind::Letter as i32, "Hello"))), Some("the text"));
/// assert_eq!(map.first_key_value(), Some((document, "the text")));
/// ```
///
/// The macro writes an implementation of [`KeyAs`](crate::KeyAs), which must be written by hand for generic types, and
/// of `Borrow<dyn Parts<Self>>` for [`by_parts`](crate::by_parts). The type must be `Clone`, and every field a
/// [`KeyPart`](crate::KeyPart). A struct with one field is represented by the key that represents this field; any other
/// struct by the tuple of these keys. An `enum` is represented by its discriminant as an `i32`, which has the order of
/// `#[derive(Ord)]`.
///
/// Fields that are not keys don't compile:
///
/// ```compile_fail,E0277
/// archipelago::index::key! {
///     #[derive(Clone)]
///     struct Wrong(Vec<String>);
/// }
/// ```
///
/// Types that are not `Clone` and discriminants outside `i32` don't compile, either:
///
/// ```compile_fail,E0277
/// archipelago::index::key! {
///     struct Wrong(u64);
/// }
/// ```
///
/// ```compile_fail,E0080
/// archipelago::index::key! {
///     #[derive(Clone)]
///     #[repr(u64)]
///     enum Wrong { Large = 1 << 63 }
/// }
/// ```
#[macro_export]
macro_rules! key {
    () => {};

    // The rules, in this order: a newtype; a tuple struct; a struct with a single field; a struct; an `enum`.
    ($(#[$of:meta])* $vis:vis struct $name:ident($(#[$about:meta])* $its:vis $field:ty $(,)?); $($more:tt)*) => {
        $(#[$of])* $vis struct $name($(#[$about])* $its $field);
        $crate::key!(@as $name, $field, this => $crate::KeyPart::lend(&this.0), key => Self(key));
        $crate::key!($($more)*);
    };
    ($(#[$of:meta])* $vis:vis struct $name:ident($($(#[$about:meta])* $its:vis $field:ty),+ $(,)?); $($more:tt)*) => {
        $(#[$of])* $vis struct $name($($(#[$about])* $its $field),+);
        $crate::key!(@tuple $name [] ($($field),+) a b c d e f g h);
        $crate::key!($($more)*);
    };
    ($(#[$of:meta])* $vis:vis struct $name:ident {
        $(#[$about:meta])* $its:vis $field:ident: $type:ty $(,)?
    } $($more:tt)*) => {
        $(#[$of])* $vis struct $name { $(#[$about])* $its $field: $type }
        $crate::key!(@as $name, $type, this => $crate::KeyPart::lend(&this.$field), key => Self { $field: key });
        $crate::key!($($more)*);
    };
    ($(#[$of:meta])* $vis:vis struct $name:ident {
        $($(#[$about:meta])* $its:vis $field:ident: $type:ty),+ $(,)?
    } $($more:tt)*) => {
        $(#[$of])* $vis struct $name { $($(#[$about])* $its $field: $type),+ }
        $crate::key!(@as $name, ($($type,)+),
            this => ($($crate::KeyPart::lend(&this.$field),)+),
            ($($field,)+) => Self { $($field),+ });
        $crate::key!($($more)*);
    };
    ($(#[$of:meta])* $vis:vis enum $name:ident {
        $($(#[$about:meta])* $variant:ident $(= $number:expr)?),+ $(,)?
    } $($more:tt)*) => {
        $(#[$of])* $vis enum $name { $($(#[$about])* $variant $(= $number)?),+ }
        const _: () = {
            $(assert!(
                $name::$variant as i128 == $name::$variant as i32 as i128,
                "a key's discriminants are within i32"
            );)+
        };
        $crate::key!(@as $name, i32,
            this => match this { $(Self::$variant => Self::$variant as i32),+ },
            number => match number {
                $(number if number == Self::$variant as i32 => Self::$variant,)+
                _ => unreachable!("each number was made of a discriminant"),
            });
        $crate::key!($($more)*);
    };

    // Gives each field of a tuple struct a name.
    (@tuple $name:ident [$($done:tt)*] ($first:ty $(, $more:ty)*) $called:ident $($names:ident)*) => {
        $crate::key!(@tuple $name [$($done)* ($first, $called)] ($($more),*) $($names)*);
    };
    (@tuple $name:ident [$(($field:ty, $called:ident))+] () $($names:ident)*) => {
        $crate::key!(@as $name, ($($field,)+),
            this => {
                let Self($($called),+) = this;
                ($($crate::KeyPart::lend($called),)+)
            },
            ($($called,)+) => Self($($called),+));
    };

    (@as $name:ident, $key:ty, $this:ident => $lent:expr, $from:pat_param => $back:expr) => {
        impl $crate::KeyAs for $name {
            type Key = $key;

            #[inline]
            fn as_key(&self) -> <$key as $crate::KeyPart>::Borrowed<'_> {
                let $this = self;
                $lent
            }

            #[inline]
            fn from_key($from: $key) -> Self {
                $back
            }
        }

        impl<'a> ::core::borrow::Borrow<dyn $crate::Parts<$name> + 'a> for $name {
            fn borrow(&self) -> &(dyn $crate::Parts<$name> + 'a) {
                self
            }
        }
    };
}
