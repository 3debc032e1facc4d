//! Rows that any store can keep, with a primary key and at most one secondary index.

use core::marker::PhantomData;

use archipelago_index::KeyPart;
use archipelago_txn::on::Kind;
use archipelago_txn::{Index, Indexes, Row};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A row. It can be encoded as bytes, for logs and for stores of byte strings.
pub trait Record: Clone + Send + Sync + Serialize + DeserializeOwned + 'static {
    /// The primary key.
    type Key: KeyPart + Ord + Serialize + DeserializeOwned;

    /// The type of the secondary index's keys, or any type if the table has no secondary index.
    type Second: KeyPart + Ord;

    /// The secondary indexes in this library's tables: `()` or `(BySecond<M, Self>,)`.
    type Indexes<M: Kind>: Indexes<At<M, Self>>;

    /// Whether there is a secondary index.
    const INDEXED: bool = false;

    /// Whether the keys of the secondary index are unique.
    const UNIQUE: bool = false;

    /// Returns the primary key. The function must be pure.
    fn key(&self) -> Self::Key;

    /// Returns the key of the secondary index. The function must be pure.
    fn second(&self) -> Self::Second;
}

/// Encodes columns as one byte string, since encoding single bytes takes many times as long.
pub(crate) mod bytes {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<const N: usize, const C: usize, S: Serializer>(
        columns: &[[u8; N]; C],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(columns.as_flattened())
    }

    pub(crate) fn deserialize<'d, const N: usize, const C: usize, D: Deserializer<'d>>(
        from: D,
    ) -> Result<[[u8; N]; C], D::Error> {
        let bytes = <&[u8]>::deserialize(from)?;
        let (columns, []) = bytes.as_chunks() else { return Err(D::Error::custom("no whole columns")) };
        columns.try_into().map_err(D::Error::custom)
    }
}

/// Declares the keys of rows without a secondary index: `plain!(Item: u32 = |item| item.id)`.
macro_rules! plain {
    ($row:ty: $key:ty = |$it:ident| $of:expr) => {
        impl $crate::record::Record for $row {
            type Key = $key;
            type Second = u8;
            type Indexes<M: archipelago_txn::on::Kind> = ();
            fn key(&self) -> $key {
                let $it = self;
                $of
            }
            fn second(&self) -> u8 {
                0
            }
        }
    };
}
pub(crate) use plain;

/// A row in a table of this library, whose indexes are on the map `M`.
#[derive(Serialize, Deserialize)]
#[serde(transparent, bound(serialize = "R: Serialize", deserialize = "R: Deserialize<'de>"))]
pub struct At<M, R> {
    /// The row.
    pub row: R,
    #[serde(skip)]
    map: PhantomData<fn() -> M>,
}

impl<M, R> At<M, R> {
    /// Makes the table's row of a record.
    pub fn new(row: R) -> Self {
        Self { row, map: PhantomData }
    }
}

impl<M, R: Clone> Clone for At<M, R> {
    fn clone(&self) -> Self {
        Self::new(self.row.clone())
    }
}

impl<M: Kind, R: Record> Row for At<M, R> {
    type Key = R::Key;
    type Map = M;
    type Indexes = R::Indexes<M>;
    fn key(&self) -> R::Key {
        self.row.key()
    }
}

/// The secondary index of a record's table.
pub struct BySecond<M, R>(PhantomData<fn() -> (M, R)>);

impl<M: Kind, R: Record> Index for BySecond<M, R> {
    type Row = At<M, R>;
    type Key = R::Second;
    type Map = M;
    const UNIQUE: bool = R::UNIQUE;
    fn key(row: &At<M, R>) -> R::Second {
        row.row.second()
    }
}
