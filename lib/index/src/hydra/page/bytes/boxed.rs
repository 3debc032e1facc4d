//! Immutable byte strings outside pages: a length, and the bytes behind it in the same allocation. So a page stores one
//! word for a string, and a reader follows one pointer.

use archipelago_platform::memory::taken_by;
use archipelago_platform::touch;
use core::alloc::Layout;

/// The bytes follow the length.
#[repr(C)]
pub(super) struct Boxed {
    len: usize,
}

impl Boxed {
    fn layout(len: usize) -> Layout {
        let (layout, _) = Layout::new::<Self>().extend(Layout::array::<u8>(len).expect(TOO_LONG)).expect(TOO_LONG);
        layout
    }

    /// Returns the number of bytes that a string of `len` bytes takes.
    pub(super) fn bytes(len: usize) -> usize {
        taken_by(Self::layout(len))
    }

    /// Allocates a string, which belongs to the caller until [`free`](Self::free).
    pub(super) fn create(bytes: &[u8]) -> *mut Self {
        let layout = Self::layout(bytes.len());
        // SAFETY: the layout has the length's size at least.
        let at = unsafe { std::alloc::alloc(layout) }.cast::<Self>();
        if at.is_null() {
            std::alloc::handle_alloc_error(layout);
        }
        // SAFETY: freshly allocated, with room for the length and the bytes.
        unsafe {
            at.write(Self { len: bytes.len() });
            at.add(1).cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        at
    }

    /// Returns the string.
    ///
    /// # Safety
    /// `at` must come from [`create`](Self::create), and must not be freed during `'a`.
    pub(super) unsafe fn lent<'a>(at: *const Self) -> &'a [u8] {
        touch(at, size_of::<Self>());
        // SAFETY: the caller guarantees that the string lives; its length never changes.
        let len = unsafe { (*at).len };
        let bytes = at.wrapping_add(1).cast::<u8>();
        touch(bytes, len);
        // SAFETY: as above; `create` wrote `len` bytes there.
        unsafe { core::slice::from_raw_parts(bytes, len) }
    }

    /// Returns the string whose address is the word `at`.
    ///
    /// # Safety
    /// The contract of [`lent`](Self::lent) must hold, and the address must have been exposed.
    pub(super) unsafe fn at<'a>(at: u64) -> &'a [u8] {
        // SAFETY: the caller guarantees the same contract.
        unsafe { Self::lent(core::ptr::with_exposed_provenance(at as usize)) }
    }

    /// Frees the string.
    ///
    /// # Safety
    /// `at` must come from [`create`](Self::create), and no thread may use the string any more.
    pub(super) unsafe fn free(at: *mut Self) {
        // SAFETY: the caller guarantees that the string lives still, and that nothing uses it afterwards.
        unsafe { std::alloc::dealloc(at.cast(), Self::layout((*at).len)) };
    }
}

const TOO_LONG: &str = "a slice's bytes and a length fit into the address space";
