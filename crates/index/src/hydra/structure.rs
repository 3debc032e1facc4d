//! HydraList as a [`Structure`]: what it supplies to the face of all maps.

use super::Hydra;
use super::config::Config;
use super::core::{Core, Local};
use super::layer::Layer;
use super::list::When as At;
use super::page::{Page, Removed, Seen};
use crate::Encode;
use crate::key::KeyForm;
use crate::map::{End, Held, Kind, Limits, Put, Structure, When, Words};
use crate::points;
use ::core::any::Any;
use archipelago_platform::hint::point;
use archipelago_platform::sync::Arc;
use archipelago_sync::rcu::{Domain, Guard};
use archipelago_sync::version_lock::{Look, Version};

/// Look-ups in flight at a time in `get_many`: enough to hide a memory access behind the others'.
const BATCH: usize = 32;

impl Kind for Hydra {
    type Core<F: KeyForm> = Core<F>;
    type Config = Config;

    const NAME: &'static str = "HydraList";

    fn build<F: KeyForm>(config: &Config, limits: Limits) -> Arc<Core<F>> {
        Arc::new_cyclic(|this| Core::new(config.clone(), limits, this.clone()))
    }
}

/// A NUMA node and its search layer.
pub struct Place<'s, F: KeyForm> {
    node: usize,
    layer: &'s Layer<F>,
}

impl<F: KeyForm> Clone for Place<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: KeyForm> Copy for Place<'_, F> {}

impl<F: KeyForm> Place<'_, F> {
    #[inline(always)]
    fn local<'a>(&'a self, guard: &'a Guard<'a>) -> Local<'a, F> {
        Local { guard, node: self.node, layer: self.layer }
    }
}

impl<F: KeyForm> Core<F> {
    /// This thread's place in a map on several nodes.
    #[inline(never)]
    fn place_by_node(&self) -> Place<'_, F> {
        let node = self.config.topology.node_of_current().min(self.layers.len() - 1);
        Place { node, layer: &self.layers[node] }
    }

    /// What is left to do after an entry has been taken out: its value is the caller's.
    fn let_go(&self, guard: &Guard<'_>, removed: &Removed, key: F::Probe<'_>) -> u64 {
        self.cell().add(-1);
        self.retire_key(guard, removed.key, key);
        removed.value
    }

    /// Retires the box that `probe` lies in, if it lies in one.
    fn retire_key(&self, guard: &Guard<'_>, key: *mut (), probe: F::Probe<'_>) {
        unsafe fn reclaim<F: KeyForm>(key: *mut (), _: *mut ()) {
            // SAFETY: RCU calls this once, when no reader is left.
            unsafe { F::Page::reclaim_key(key) }
        }
        if key.is_null() {
            return;
        }
        let bytes = F::outside(probe);
        self.cell().add_outside(-(bytes as isize));
        // SAFETY: the key is out of the map and ours alone to retire.
        unsafe { guard.retire_sized(key, bytes, ::core::ptr::null_mut(), reclaim::<F>) }
        self.note_garbage();
    }

    /// Counts what was put in.
    #[inline]
    fn counted(&self, put: Put, key: F::Probe<'_>) -> Put {
        if let Put::Inserted = put {
            self.cell().add(1);
            let outside = F::outside(key);
            if outside != 0 {
                self.cell().add_outside(outside as isize);
            }
        }
        put
    }

    /// Goes on from a jump node that has been prefetched to the target's entry, and starts fetching that.
    #[inline]
    fn approach(&self, stop: &mut Stop<'_, F>, key: F::Probe<'_>) {
        let (page, version) = self.target(stop.page, key);
        let candidates = page.candidates(F::tag(key));
        *stop = Stop { page, version: Some(version), candidates };
        if candidates != 0 {
            page.prefetch_slot(candidates.trailing_zeros() as usize);
        }
    }

    /// Ends what `approach` began; starts over if the page has changed in between.
    #[inline]
    fn arrive(&self, stop: &Stop<'_, F>, key: F::Probe<'_>) -> Option<u64> {
        point(points::CANDIDATES);
        let version = stop.version.expect("approached");
        if let Ok(slot) = stop.page.find_among(stop.candidates, key, Seen::At(version)) {
            let found = slot.map(|slot| stop.page.value(slot));
            if stop.page.lock().validate(version) {
                return found;
            }
        }
        Core::get(self, stop.page, key, F::tag(key))
    }
}

/// How far a look-up of a batch has come.
struct Stop<'g, F: KeyForm> {
    page: &'g F::Page,
    /// At this version, once the target is known.
    version: Option<Version>,
    /// The target's slots that may hold the key.
    candidates: u64,
}

impl<F: KeyForm> Clone for Stop<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: KeyForm> Copy for Stop<'_, F> {}

impl<F: KeyForm> Structure<F> for Core<F> {
    type Place<'s> = Place<'s, F>;
    type Near<'g> = Option<&'g F::Page>;

    #[inline]
    fn place(&self) -> Place<'_, F> {
        if let [layer] = &*self.layers { Place { node: 0, layer } } else { self.place_by_node() }
    }

    #[inline]
    fn domain(&self) -> &Domain {
        &self.domain
    }

    #[inline]
    fn limits(&self) -> &Limits {
        &self.limits
    }

    #[inline(always)]
    fn get(&self, place: Place<'_, F>, guard: &Guard<'_>, key: F::Probe<'_>) -> Option<u64> {
        Core::get(self, place.local(guard).jump(key), key, F::tag(key))
    }

    #[inline(always)]
    fn put(&self, place: Place<'_, F>, guard: &Guard<'_>, key: F::Probe<'_>, word: u64, when: When) -> Put {
        let local = place.local(guard);
        self.counted(Core::put(self, &local, local.jump(key), key, F::tag(key), word, when), key)
    }

    fn take(&self, place: Place<'_, F>, guard: &Guard<'_>, key: F::Probe<'_>, expected: Option<u64>) -> Option<u64> {
        let local = place.local(guard);
        let removed = Core::take(self, &local, local.jump(key), key, F::tag(key), expected)?;
        Some(self.let_go(guard, &removed, key))
    }

    fn take_end<R>(
        &self,
        place: Place<'_, F>,
        guard: &Guard<'_>,
        end: End,
        found: impl FnOnce(F::Probe<'_>, u64) -> R,
    ) -> Option<R> {
        Core::take_end(self, &place.local(guard), end, |key, removed| found(key, self.let_go(guard, &removed, key)))
    }

    fn scan(
        &self,
        place: Place<'_, F>,
        guard: &Guard<'_>,
        from: F::Probe<'_>,
        limit: usize,
        words: Words,
        visit: impl FnMut(F::Probe<'_>, u64) -> bool,
    ) -> usize {
        Core::scan(self, &place.local(guard), from, limit, words, visit)
    }

    fn scan_back(
        &self,
        place: Place<'_, F>,
        guard: &Guard<'_>,
        bound: Option<F::Probe<'_>>,
        limit: usize,
        words: Words,
        visit: impl FnMut(F::Probe<'_>, u64) -> bool,
    ) -> usize {
        Core::scan_back(self, &place.local(guard), bound, limit, words, visit)
    }

    #[inline]
    fn ceiling<R>(
        &self,
        place: Place<'_, F>,
        guard: &Guard<'_>,
        from: F::Probe<'_>,
        found: impl FnOnce(F::Probe<'_>, u64) -> R,
    ) -> Option<R> {
        Core::ceiling(self, &place.local(guard), from, found)
    }

    fn split_points(&self, place: Place<'_, F>, guard: &Guard<'_>, count: usize, mut show: impl FnMut(F::Probe<'_>)) {
        let local = place.local(guard);
        let anchors = local.layer.anchors(guard);
        for part in 1..=count.min(anchors.len()) {
            let anchor = anchors[part * anchors.len() / (count.min(anchors.len()) + 1)];
            // A page's lower bound need not be a key, as the first entry above it is.
            // SAFETY: a page that a layer leads to is not retired before our guard ends.
            Core::ceiling(self, &local, unsafe { anchor.anchor() }, |key, _| show(key));
        }
    }

    fn get_many<Q: Encode<Form = F>>(
        &self,
        place: Place<'_, F>,
        guard: &Guard<'_>,
        keys: &[Q],
        mut found: impl FnMut(Option<u64>),
    ) {
        let local = place.local(guard);
        for keys in keys.chunks(BATCH) {
            for key in keys {
                key.encode(|key| local.layer.prefetch(key));
            }
            let mut stops = [None; BATCH];
            for (key, stop) in keys.iter().zip(&mut stops) {
                let page = key.encode(|key| local.jump(key));
                F::Page::prefetch(page);
                *stop = Some(Stop { page, version: None, candidates: 0 });
            }
            for (key, stop) in keys.iter().zip(stops.iter_mut().flatten()) {
                key.encode(|key| self.approach(stop, key));
            }
            for (key, stop) in keys.iter().zip(stops.iter().flatten()) {
                found(key.encode(|key| self.arrive(stop, key)));
            }
        }
    }

    fn put_near<'g>(
        &self,
        place: Place<'_, F>,
        guard: &'g Guard<'_>,
        near: &mut Option<&'g F::Page>,
        key: F::Probe<'_>,
        word: u64,
    ) -> Put {
        let local = place.local(guard);
        let page = self.jump_from(*near, &local, key);
        // SAFETY: a page that was reached under the guard is not reclaimed before it ends.
        *near = Some(unsafe { &*::core::ptr::from_ref(page) });
        self.counted(Core::put(self, &local, page, key, F::tag(key), word, At::Always), key)
    }

    fn entries(&self) -> usize {
        Core::len(self)
    }

    fn held(&self) -> Held {
        let (pages, layers) = (self.pages(), self.layer_bytes());
        Held { bytes: self.page_bytes() + self.outside_bytes() + layers, pages, room: pages * F::Page::SLOTS, layers }
    }

    #[inline]
    fn note_garbage(&self) {
        Core::note_garbage(self);
    }

    fn settle(&self) {
        self.tidy(self.place().node);
    }

    fn dismantle(&self, mut each: impl FnMut(u64)) -> Option<Box<dyn Any + Send>> {
        let panicked = self.stop_background();
        self.domain.stop_tending();
        let mut skip = false;
        self.for_each_page(|page| {
            // Locked by a thread that this process has not got, being a child: it may have been moving entries from the
            // next page to this one. They leak.
            let locked = matches!(page.lock().look(), Look::Locked);
            if ::core::mem::replace(&mut skip, locked) || locked {
                return;
            }
            for slot in (0..page.len()).rev() {
                let removed = page.remove(slot);
                if !removed.key.is_null() {
                    // SAFETY: nobody else uses the map, so the entry is ours.
                    unsafe { F::Page::reclaim_key(removed.key) };
                }
                each(removed.value);
            }
        });
        panicked
    }

    fn check(&self) {
        self.check_invariants();
    }
}
