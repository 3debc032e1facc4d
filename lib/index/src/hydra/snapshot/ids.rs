//! Pages as 31-bit numbers, so that eight of them fit in half a cache line.
//!
//! Pages are stored in chunks of adjacent pages. A number consists of the number of a *base*, which is an address, and
//! of the page's distance from the base in pages. A page's base follows from its address alone: addresses are divided
//! into regions of [`SPAN`] pages, and all pages of one region whose addresses differ by whole pages share a base. So a
//! 2 MiB chunk has at most two bases.

use std::collections::HashMap;

use archipelago_platform::plain::Plain;

use super::Target;

/// The number of pages per base.
const SPAN: usize = 1 << SPAN_BITS;
const SPAN_BITS: u32 = 12;

/// The bases in use.
#[derive(Clone, Default)]
pub struct PageIds {
    /// The address of each base, by its number. If the number is free, the address is that of an earlier base.
    bases: Vec<Plain<usize>>,
    /// The number of pages that use each base, by the base's number.
    uses: Vec<Plain<u32>>,
    numbers: HashMap<usize, u32>,
    free: Vec<u32>,
}

impl PageIds {
    /// Returns the number of `page`, and counts one more use of its base. Returns `None` if there are no more bases.
    /// This happens from about 2^19 chunks on, which are about a tebibyte of pages.
    pub fn acquire<P: Target>(&mut self, page: P) -> Option<u32> {
        let addr = page.addr();
        let region = addr - addr % (P::STRIDE * SPAN);
        let base = region + (addr - region) % P::STRIDE;
        let number = match self.numbers.get(&base) {
            Some(&number) => number,
            None => self.add(base)?,
        };
        *self.uses[number as usize] += 1;
        Some(number << SPAN_BITS | ((addr - base) / P::STRIDE) as u32)
    }

    fn add(&mut self, base: usize) -> Option<u32> {
        let number = self.free.pop().unwrap_or(self.bases.len() as u32);
        if number as usize == self.bases.len() {
            if number >= super::lines::MAX_ID >> SPAN_BITS {
                return None;
            }
            self.bases.push(Plain::new(0));
            self.uses.push(Plain::new(0));
        }
        *self.bases[number as usize] = base;
        self.numbers.insert(base, number);
        Some(number)
    }

    /// Decrements the number of uses of a page's base.
    pub fn release(&mut self, id: u32) {
        let number = id >> SPAN_BITS;
        let uses = &mut self.uses[number as usize];
        **uses -= 1;
        if **uses == 0 {
            self.numbers.remove(&*self.bases[number as usize]);
            self.free.push(number);
        }
    }

    /// Returns the page of a number that is in use.
    ///
    /// # Safety
    /// `acquire` must have returned the number for a page of this type.
    #[inline(always)]
    pub unsafe fn page<P: Target>(&self, id: u32) -> P {
        let number = (id >> SPAN_BITS) as usize;
        debug_assert!(*self.uses[number] > 0);
        // SAFETY: the number was returned by `acquire`. So its base is present, and this is the address for which it
        // was returned.
        unsafe { P::at(**self.bases.get_unchecked(number) + (id as usize % SPAN) * P::STRIDE) }
    }

    /// Returns the bytes of memory held, approximately.
    pub fn bytes(&self) -> usize {
        self.bases.capacity() * (size_of::<usize>() + size_of::<u32>()) + self.numbers.capacity() * 16
    }
}
