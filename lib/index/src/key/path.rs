//! Paths as keys, on Unix. Their order and equality are those of [`Path`]: component by component. So `a/b`, `a//b` and
//! `a/b/` are one key, and a directory is followed by the paths in it.
//!
//! A component is encoded as a byte for its kind. The kinds have the order of [`Component`]. If the component has a
//! name, the name follows as a string part. If other parts of the key follow, a path ends with a byte that is less than
//! the bytes of all kinds. So no path's encoding is a prefix of another one's.

use super::part::{Encoded, PartBuffer};
use super::string::{encode_as_lent, read_string, write_string};
use super::width::Wide;
use super::{EncodeAs, KeyPart};
use crate::structure::{Bytes, Encode};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

const END: u8 = 0;
const ROOT: u8 = 1;
const CURRENT: u8 = 2;
const PARENT: u8 = 3;
const NORMAL: u8 = 4;

// SAFETY: `read` takes each component as `write` appended it, up to the end mark or the end of the whole key.
unsafe impl KeyPart for PathBuf {
    type Width = Wide;
    type Borrowed<'a> = &'a Path;
    type Part<'a> = PathBuf;
    type Whole<'a> = PathBuf;

    fn lend(&self) -> &Path {
        self
    }

    fn write(path: &Path, last: bool, to: &mut PartBuffer) {
        for component in path.components() {
            match component {
                Component::Prefix(_) => unreachable!("paths of Unix have no prefix"),
                Component::RootDir => to.push(&[ROOT]),
                Component::CurDir => to.push(&[CURRENT]),
                Component::ParentDir => to.push(&[PARENT]),
                Component::Normal(name) => {
                    to.push(&[NORMAL]);
                    write_string(name.as_bytes(), false, to);
                }
            }
        }
        if !last {
            to.push(&[END]);
        }
    }

    unsafe fn read(from: &mut Encoded<'_>, last: bool) -> PathBuf {
        let mut path = PathBuf::new();
        while !(last && from.is_empty()) {
            match from.take() {
                [END] => break,
                [ROOT] => path.push("/"),
                [CURRENT] => path.push("."),
                [PARENT] => path.push(".."),
                [_] => path.push(OsStr::from_bytes(&read_string(from, false))),
            }
        }
        path
    }

    fn own(part: Self::Part<'_>) -> PathBuf {
        part
    }

    fn alone(part: Self::Part<'_>) -> Self::Whole<'_> {
        part
    }
}

encode_as_lent! {
    Path as PathBuf;
}

// SAFETY: a `Path` has the same encoding as the `PathBuf` from which it can be borrowed.
unsafe impl EncodeAs<PathBuf> for Path {}
