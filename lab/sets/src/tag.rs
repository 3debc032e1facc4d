//! Pointers whose low bit marks the owner of the link that holds the pointer as removed.

pub(crate) fn tagged<T>(node: *mut T) -> *mut T {
    node.map_addr(|addr| addr | 1)
}

pub(crate) fn untagged<T>(node: *mut T) -> *mut T {
    node.map_addr(|addr| addr & !1)
}

pub(crate) fn is_tagged<T>(node: *mut T) -> bool {
    node.addr() & 1 == 1
}
