//! HydraList as a [`Structure`], the interface that maps use.

use super::Hydra;
use super::config::Config;
use super::layer::Layer;
use super::page::{Page, Removed, Seen};
use super::shared::{Core, Local};
use super::stats::MaintenanceStats;
use crate::hydra::HydraForm;
use crate::limits::Limits;
use crate::structure::Encode;
use crate::structure::{Bytes, End, Held, Kind, Put, Structure, When, Word, Words};
use archipelago_platform::sync::Arc;
use archipelago_sync::rcu::{Domain, Guard};
use archipelago_sync::version_lock::Look;
use core::any::Any;

impl Kind for Hydra {
    type OfWords = Core<Word>;
    type OfBytes = Core<Bytes>;
    type Config = Config;
    type Hooks = dyn Hooks;

    const NAME: &'static str = "HydraList";
}

/// Methods for tests of a HydraList of either form.
pub trait Hooks {
    fn maintenance_stats(&self) -> MaintenanceStats;
    fn move_pages(&self);
    fn pause_rounds(&self, paused: bool);
    fn give_turns(&self);
}

impl<F: HydraForm> Hooks for Core<F> {
    fn maintenance_stats(&self) -> MaintenanceStats {
        Core::maintenance_stats(self)
    }

    fn move_pages(&self) {
        Core::move_pages(self, 0);
    }

    fn pause_rounds(&self, paused: bool) {
        Core::pause_rounds(self, paused);
    }

    fn give_turns(&self) {
        self.maintenance.background.turns.give();
    }
}

/// A NUMA node and its search layer.
pub struct Place<'s, F: HydraForm> {
    node: usize,
    layer: &'s Layer<F>,
}

impl<F: HydraForm> Clone for Place<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: HydraForm> Copy for Place<'_, F> {}

impl<F: HydraForm> Place<'_, F> {
    #[inline(always)]
    fn local<'a>(&'a self, guard: &'a Guard<'a>) -> Local<'a, F> {
        Local { guard, node: self.node, layer: self.layer }
    }
}

impl<F: HydraForm> Core<F> {
    /// Returns this thread's starting data in a map on several nodes.
    #[inline(never)]
    fn place_by_node(&self) -> Place<'_, F> {
        let node = self.config.topology.node_of_current().min(self.layers.len() - 1);
        Place { node, layer: &self.layers[node] }
    }

    /// Retires the removed entry's key and counts the removal. The caller owns the entry's value.
    fn let_go(&self, guard: &Guard<'_>, removed: &Removed, key: F::Probe<'_>) -> u64 {
        self.cell().add(-1);
        self.retire_key(guard, removed.key, key);
        removed.value
    }

    /// Retires the box that contains `probe`, if the key is boxed.
    fn retire_key(&self, guard: &Guard<'_>, key: *mut (), probe: F::Probe<'_>) {
        unsafe fn reclaim<F: HydraForm>(key: *mut (), _: *mut ()) {
            // SAFETY: RCU calls this once, when no reader is left.
            unsafe { F::Page::reclaim_key(key) }
        }
        if key.is_null() {
            return;
        }
        let bytes = F::outside(probe);
        self.cell().add_outside(-(bytes as isize));
        // SAFETY: the key is out of the map, and only this operation retires it.
        unsafe { guard.retire_sized(key, bytes, core::ptr::null_mut(), reclaim::<F>) }
        self.note_garbage();
    }

    /// Counts the entry if `put` has inserted it.
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
}

// SAFETY: the contract is what the modules of this structure prove, part by part.
unsafe impl<F: HydraForm> Structure<F> for Core<F> {
    type Place<'s> = Place<'s, F>;
    type Near<'g> = Option<&'g F::Page>;
    type Config = Config;
    type Hooks = dyn Hooks;

    fn build(config: &Config, limits: Limits) -> Arc<Self> {
        Arc::new_cyclic(|this| Core::new(config.clone(), limits, this.clone()))
    }

    fn hooks(&self) -> &Self::Hooks {
        self
    }

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
        Core::get_in_list(self, guard, place.local(guard).jump(key), key, F::tag(key))
    }

    #[inline(always)]
    fn put(&self, place: Place<'_, F>, guard: &Guard<'_>, key: F::Probe<'_>, word: u64, when: When) -> Put {
        let local = place.local(guard);
        self.counted(Core::put_in_list(self, &local, &mut local.jump(key), key, F::tag(key), word, when), key)
    }

    fn take(&self, place: Place<'_, F>, guard: &Guard<'_>, key: F::Probe<'_>, expected: Option<u64>) -> Option<u64> {
        let local = place.local(guard);
        let removed = Core::take_in_list(self, &local, local.jump(key), key, F::tag(key), expected)?;
        Some(self.let_go(guard, &removed, key))
    }

    fn take_end<R>(
        &self,
        place: Place<'_, F>,
        guard: &Guard<'_>,
        end: End,
        found: impl FnOnce(F::Probe<'_>, u64) -> R,
    ) -> Option<R> {
        Core::take_end_in_list(self, &place.local(guard), end, |key, removed| {
            found(key, self.let_go(guard, &removed, key))
        })
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
        Core::scan_list(self, &place.local(guard), from, limit, words, visit)
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
        Core::scan_list_back(self, &place.local(guard), bound, limit, words, visit)
    }

    #[inline]
    fn ceiling<R>(
        &self,
        place: Place<'_, F>,
        guard: &Guard<'_>,
        from: F::Probe<'_>,
        found: impl FnOnce(F::Probe<'_>, u64) -> R,
    ) -> Option<R> {
        Core::ceiling_in_list(self, &place.local(guard), from, found)
    }

    fn split_points(&self, place: Place<'_, F>, guard: &Guard<'_>, count: usize, mut show: impl FnMut(F::Probe<'_>)) {
        let local = place.local(guard);
        let anchors = local.layer.anchors(guard, count.saturating_add(1));
        for part in 1..=count.min(anchors.len()) {
            let anchor = anchors[part * anchors.len() / (count.min(anchors.len()) + 1)];
            // A page's lower bound need not be a key of the map, so the first key at or above it is shown.
            // SAFETY: a page to which a layer leads is not retired before the guard ends.
            Core::ceiling_in_list(self, &local, unsafe { anchor.anchor() }, |key, _| show(key));
        }
    }

    fn get_many<Q: Encode<Form = F>>(
        &self,
        place: Place<'_, F>,
        guard: &Guard<'_>,
        keys: &[Q],
        found: impl FnMut(Option<u64>),
    ) {
        self.look_up_many(&place.local(guard), keys, found);
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
        let mut page = self.jump_from(*near, &local, key);
        let put = Core::put_in_list(self, &local, &mut page, key, F::tag(key), word, When::Always);
        // SAFETY: a page that was reached under the guard is not reclaimed before the guard ends.
        *near = Some(unsafe { &*core::ptr::from_ref(page) });
        self.counted(put, key)
    }

    fn entries(&self) -> usize {
        Core::len(self)
    }

    fn held(&self) -> Held {
        let (pages, layers) = (self.pages(), self.layer_bytes());
        // A page of consecutive words has more entries than slots.
        let room = (pages * F::Page::SLOTS).max(self.len());
        Held { bytes: self.page_bytes() + self.outside_bytes() + layers, pages, room, layers }
    }

    fn outside(&self, key: F::Probe<'_>) -> usize {
        F::outside(key)
    }

    fn spare(&self, place: Place<'_, F>) -> usize {
        self.spare_bytes(place.node)
    }

    fn fits(&self, place: Place<'_, F>, guard: &Guard<'_>, key: F::Probe<'_>) -> bool {
        let local = place.local(guard);
        loop {
            let (page, version, _) = self.target(local.guard, local.jump(key), key);
            let Ok(found) = page.find(key, F::tag(key), Seen::At(version)) else { continue };
            let fits = found.is_some() || page.has_room_for(key);
            if page.lock().validate(version) {
                return fits;
            }
        }
    }

    fn is_thin(&self) -> bool {
        Core::is_thin(self)
    }

    #[inline]
    fn note_garbage(&self) {
        Core::note_garbage(self);
    }

    fn settle(&self) {
        self.tidy(self.place().node);
    }

    unsafe fn dismantle(&self, mut each: impl FnMut(u64)) -> Option<Box<dyn Any + Send>> {
        let panicked = self.stop_background();
        self.domain.stop_tending();
        let mut skip = false;
        self.for_each_page(|page| {
            // If the page is locked, this process was made by a `fork`, and the thread that holds the lock does not
            // exist in it. The thread may have been moving entries from the next page to this one, so the entries of
            // both pages leak.
            let locked = matches!(page.lock().look(), Look::Locked);
            if core::mem::replace(&mut skip, locked) || locked {
                return;
            }
            while let Some(removed) = page.pop() {
                if !removed.key.is_null() {
                    // SAFETY: no other thread uses the map, so this thread owns the entry.
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
