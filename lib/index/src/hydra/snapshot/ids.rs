//! Pages as 31-bit numbers, so that eight of them fit half a cache line.
//!
//! Pages lie in chunks, one after the other. A number is that of a *base*, an address, and how many pages behind it the
//! page is. A page's base follows from its address alone: addresses are cut into regions of [`SPAN`] pages, and pages
//! of one region whose addresses differ by whole pages share a base. So a 2 MiB chunk has two at most.

use std::collections::HashMap;

use archipelago_platform::plain::Plain;

use super::Target;

/// Pages per base.
const SPAN: usize = 1 << SPAN_BITS;
const SPAN_BITS: u32 = 12;

/// The bases in use.
#[derive(Clone, Default)]
pub struct PageIds {
    /// By number. Zero where a number is free.
    bases: Vec<Plain<usize>>,
    /// By number, how many pages use it.
    uses: Vec<Plain<u32>>,
    numbers: HashMap<usize, u32>,
    free: Vec<u32>,
}

impl PageIds {
    /// The number of `page`, which counts as used once more. `None` when there are no more bases: from some 2^19
    /// chunks on, about a tebibyte of pages.
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

    /// The page is used once less.
    pub fn release(&mut self, id: u32) {
        let number = id >> SPAN_BITS;
        let uses = &mut self.uses[number as usize];
        **uses -= 1;
        if **uses == 0 {
            self.numbers.remove(&*self.bases[number as usize]);
            self.free.push(number);
        }
    }

    /// The page of a number that is in use.
    ///
    /// # Safety
    /// `acquire` gave the number out, for a page of this type.
    #[inline(always)]
    pub unsafe fn page<P: Target>(&self, id: u32) -> P {
        let number = (id >> SPAN_BITS) as usize;
        debug_assert!(*self.uses[number] > 0);
        // SAFETY: the number was given out, so its base is there, and this is the address that it was given out for.
        unsafe { P::at(**self.bases.get_unchecked(number) + (id as usize % SPAN) * P::STRIDE) }
    }

    /// Bytes of memory held, roughly.
    pub fn bytes(&self) -> usize {
        self.bases.capacity() * (size_of::<usize>() + size_of::<u32>()) + self.numbers.capacity() * 16
    }
}
