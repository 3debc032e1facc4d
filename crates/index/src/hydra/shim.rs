pub mod simd {
    use archipelago_platform::atomic::*;
    #[inline]
    pub fn match_bytes<const N: usize>(b: &[AtomicU8; N], x: u8) -> u64 {
        #[cfg(not(miri))]
        unsafe {
            use core::arch::asm;
            use core::arch::x86_64::*;
            let mut m = 0u64;
            let v = _mm_set1_epi8(x as i8);
            for i in 0..N / 16 {
                let r: __m128i;
                asm!("movdqu {}, [{}]", out(xmm_reg) r, in(reg) b.as_ptr().add(i*16), options(nostack,readonly,preserves_flags));
                m |= (_mm_movemask_epi8(_mm_cmpeq_epi8(r, v)) as u64) << (16 * i);
            }
            m
        }
        #[cfg(miri)]
        {
            let mut m = 0;
            for i in 0..N {
                if b[i].load(Ordering::Relaxed) == x {
                    m |= 1 << i
                }
            }
            m
        }
    }
}
pub mod racy {
    use archipelago_platform::atomic::*;
    #[inline]
    pub fn copy_words(s: &[AtomicU64], d: &mut [u64]) {
        for (a, b) in s.iter().zip(d) {
            *b = a.load(Ordering::Relaxed)
        }
    }
}
pub mod rcu {
    use std::marker::PhantomData;
    pub struct Domain;
    pub struct Guard<'a>(PhantomData<(&'a (), *mut ())>);
    pub struct Reader<'a>(PhantomData<(&'a (), *mut ())>);
    impl Domain {
        pub fn new() -> Self {
            Domain
        }
        pub fn pin(&self) -> Guard<'_> {
            Guard(PhantomData)
        }
        pub fn reader(&self) -> Reader<'_> {
            Reader(PhantomData)
        }
    }
    impl<'a> Reader<'a> {
        pub fn enter(&self) -> Guard<'a> {
            Guard(PhantomData)
        }
    }
    impl Guard<'_> {
        pub unsafe fn retire(&self, _p: *mut (), _c: *mut (), _f: unsafe fn(*mut (), *mut ())) {}
        pub unsafe fn retire_box<T>(&self, p: *mut T) {
            let _ = p;
        }
    }
}
pub mod memory {
    use std::alloc::*;
    use std::ptr::NonNull;
    pub struct BlockArena(Layout);
    impl BlockArena {
        pub fn new(l: Layout, _n: Option<usize>) -> Self {
            Self(l)
        }
        pub fn alloc(&self) -> NonNull<u8> {
            unsafe { NonNull::new(alloc(self.0)).unwrap() }
        }
        pub unsafe fn free(&self, p: NonNull<u8>) {
            unsafe { dealloc(p.as_ptr(), self.0) }
        }
        pub fn bytes_held(&self) -> usize {
            0
        }
        pub fn owns(&self, _p: NonNull<u8>) -> bool {
            true
        }
    }
}
pub mod clock {
    pub struct OrderedClock;
    impl OrderedClock {
        pub fn shared() -> &'static Self {
            &OrderedClock
        }
        pub fn now(&self) -> u64 {
            use std::sync::atomic::*;
            static C: AtomicU64 = AtomicU64::new(0);
            C.fetch_add(1, Ordering::Relaxed)
        }
    }
}
