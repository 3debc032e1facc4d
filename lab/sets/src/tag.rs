//! Pointers whose low bit says that the owner of the link which holds them is removed.

pub(crate) fn tagged<T>(node: *mut T) -> *mut T {
    node.map_addr(|addr| addr | 1)
}

pub(crate) fn untagged<T>(node: *mut T) -> *mut T {
    node.map_addr(|addr| addr & !1)
}

pub(crate) fn is_tagged<T>(node: *mut T) -> bool {
    node.addr() & 1 == 1
}
