//! Structures over Versioned Programming, after Zhan and Porter (SYSTOR 2016).
//!
//! Each node's links have a chain of versions (`version_chain.rs`). A reader takes a snapshot, which is an *epoch*, and
//! reads of each chain the newest version of an epoch up to its own. An update works on a snapshot, too. It makes a
//! version of each node that it changes or retires, puts the versions into their chains, and appends its record to the
//! list of commits (`commit_list.rs`). The place in the list is the epoch. If a commit after the snapshot has changed
//! one of the nodes, the update has failed: its versions stay in their chains as aborted ones, and the update is
//! repeated on a new snapshot at once.
//!
//! No thread waits for another: if an attempt fails, another thread's update has committed, or has retired a node.
//!
//! Two updates that change the same nodes conflict; an update that only reads what another changes does not. So
//! snapshots are as those of MV-RLU (snapshot isolation), and suffice for the structures for the same reason.
//!
//! What is not needed any more is retired by RCU. So a reader that stays in its section stops all of it: memory grows
//! by what updates make (the `hostile` tests state how much).

use core::ptr::NonNull;

use archipelago_platform::hint::point;
use archipelago_platform::touch;
use archipelago_sync::rcu::{Domain, Guard, Reader};

use crate::commit_list::{CommitList, Moment, Record};
use crate::mechanism::{Change, Conflict, Mechanism, Node, Session, Update, View};
use crate::points;
use crate::version_chain::{Object, Version, VersionedLink};

/// Structures over Versioned Programming (Zhan and Porter, 2016): lock-free updates of several nodes at once, with
/// chains of versions and one list of all commits.
pub struct OverVersioned {
    domain: Domain,
    commits: CommitList,
}

/// The default number of commits that are kept for sessions that begin or were idle.
const KEPT: u64 = if cfg!(loom) { 2 } else { 1024 };

impl OverVersioned {
    /// Makes the mechanism with this number of commits (0 counts as 1) that are kept for sessions that begin or were
    /// idle. A greater number takes more memory, 64 bytes a commit, and such sessions walk further.
    pub fn keeping(commits: u64) -> Self {
        Self { domain: Domain::new(), commits: CommitList::new(commits) }
    }
}

impl Default for OverVersioned {
    fn default() -> Self {
        Self::keeping(KEPT)
    }
}

impl<const LINKS: usize> Mechanism<LINKS> for OverVersioned {
    type Link = VersionedLink<LINKS>;
    type Session<'m> = VersionedSession<'m, LINKS>;

    fn for_scopes(self, _: usize) -> Self {
        self
    }

    fn root(&self) -> VersionedLink<LINKS> {
        VersionedLink::new(Node { key: 0, next: [None; LINKS], value: 0 })
    }

    fn session(&self) -> VersionedSession<'_, LINKS> {
        let (reader, plan) = (self.domain.reader(), Plan { writes: Vec::new(), made: Vec::new() });
        VersionedSession { over: self, reader, last: Moment::NEVER, plan, aborts: 0 }
    }
}

/// A node that an update changes or retires.
struct Write<const LINKS: usize> {
    link: VersionedLink<LINKS>,
    /// The update's version, in the chain or not yet.
    version: NonNull<Version<LINKS>>,
    retires: bool,
}

/// The changes of an update.
struct Plan<const LINKS: usize> {
    writes: Vec<Write<LINKS>>,
    /// The new nodes.
    made: Vec<VersionedLink<LINKS>>,
}

impl<const LINKS: usize> Plan<LINKS> {
    fn place(&self, link: VersionedLink<LINKS>) -> Option<usize> {
        touch(self.writes.as_ptr(), size_of_val(&self.writes[..]));
        self.writes.iter().position(|write| write.link == link)
    }

    /// Frees everything. The first `put` versions are in chains, and stay there unless the node is new.
    fn discard(&mut self, put: usize) {
        for (place, write) in self.writes.drain(..).enumerate() {
            if place < put {
                // SAFETY: a version in a chain is not freed in the section that put it there.
                unsafe { write.version.as_ref() }.aborted();
            } else {
                // SAFETY: a box that no other thread knows.
                drop(unsafe { Box::from_raw(write.version.as_ptr()) });
            }
        }
        for link in self.made.drain(..) {
            // SAFETY: only the update's versions lead to the node; they are aborted, so no thread reads their links.
            unsafe { link.free() };
        }
    }
}

#[doc(hidden)]
pub struct VersionedSession<'m, const LINKS: usize> {
    over: &'m OverVersioned,
    reader: Reader<'m>,
    last: Moment,
    plan: Plan<LINKS>,
    aborts: u64,
}

impl<'m, const LINKS: usize> VersionedSession<'m, LINKS> {
    /// Enters a section, and takes a snapshot.
    #[inline]
    fn begin(&mut self) -> (Guard<'m>, At) {
        let guard = self.reader.enter();
        // SAFETY: in a section.
        self.last = unsafe { self.over.commits.now(self.last) };
        (guard, At(self.last.epoch()))
    }

    /// Tries to commit the plan, on the snapshot at `last`. The plan is empty afterwards. Returns whether it succeeded.
    fn commit(&mut self, guard: &Guard<'_>) -> bool {
        let writes = &self.plan.writes;
        let record = Box::into_raw(Record::new(writes.iter().map(|write| write.link.address())));
        // SAFETY: the snapshot saw the node, or the node is new.
        let put = |write: &Write<LINKS>| unsafe { write.link.object().put(write.version, record) };
        let count = writes.iter().take_while(|write| put(write)).count();
        let is_put = count == writes.len();
        point(points::PUT);
        // SAFETY: `last` is of this section, and the record is a box.
        let moment = is_put.then(|| unsafe { self.over.commits.append(record, self.last) }).flatten();
        let Some(moment) = moment else {
            self.plan.discard(count);
            // SAFETY: the record is not in the list, and the versions are aborted: no thread asks it any more.
            unsafe { guard.retire_box(record) };
            return false;
        };
        self.last = moment;
        point(points::APPENDED);
        // SAFETY: a version in a chain is not freed in the section that put it there.
        writes.iter().for_each(|write| unsafe { write.version.as_ref() }.committed(moment.epoch()));
        // SAFETY: just appended; no version leads to the record any more.
        unsafe { self.over.commits.finish(moment, guard) };
        for write in self.plan.writes.drain(..) {
            // SAFETY: just committed. The structure promises that no remaining node has a link to a retired node.
            unsafe {
                write.version.as_ref().retire_below(guard);
                if write.retires {
                    write.link.retire(write.version, guard);
                }
            }
        }
        self.plan.made.clear();
        true
    }
}

impl<const LINKS: usize> Session<LINKS> for VersionedSession<'_, LINKS> {
    type Link = VersionedLink<LINKS>;
    type View<'s>
        = At
    where
        Self: 's;
    type Update<'s>
        = Changing<'s, LINKS>
    where
        Self: 's;

    #[inline]
    fn read<R>(&mut self, body: impl FnOnce(&At) -> R) -> R {
        let (_guard, at) = self.begin();
        body(&at)
    }

    #[inline]
    fn read_at_once<R>(&mut self, _: &[usize], body: impl FnOnce(&At) -> R) -> R {
        let (_guard, at) = self.begin();
        body(&at)
    }

    fn update<R>(&mut self, _: &[usize], mut body: impl FnMut(&mut Changing<'_, LINKS>) -> Result<R, Conflict>) -> R {
        debug_assert!(self.plan.writes.is_empty(), "an update within an update");
        self.reader.give_way();
        loop {
            let (guard, at) = self.begin();
            match body(&mut Changing { at, plan: &mut self.plan }) {
                Ok(result) if self.plan.writes.is_empty() => {
                    self.plan.discard(0);
                    return result;
                }
                Ok(result) if self.commit(&guard) => return result,
                Ok(_) => {}
                Err(Conflict) => self.plan.discard(0),
            }
            self.aborts += 1;
        }
    }

    fn aborts(&self) -> u64 {
        self.aborts
    }
}

/// The snapshot of an epoch.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct At(u64);

impl At {
    /// Returns a node and the version of its links that the snapshot sees.
    ///
    /// # Safety
    /// As [`View::step`].
    #[inline]
    unsafe fn see<'s, const LINKS: usize>(self, link: VersionedLink<LINKS>) -> (&'s Object<LINKS>, &'s Version<LINKS>) {
        // SAFETY: the caller's promise.
        unsafe {
            let object = link.object();
            (object, object.at(self.0))
        }
    }
}

impl<const LINKS: usize> View<LINKS> for At {
    type Link = VersionedLink<LINKS>;

    #[inline]
    unsafe fn step(&self, link: VersionedLink<LINKS>, side: usize) -> (u64, Option<VersionedLink<LINKS>>) {
        // SAFETY: the caller's promise.
        let (object, version) = unsafe { self.see(link) };
        (*object.key, version.next[side])
    }

    #[inline]
    unsafe fn toward(&self, link: VersionedLink<LINKS>, key: u64) -> (u64, Option<VersionedLink<LINKS>>) {
        // SAFETY: the caller's promise.
        let (object, version) = unsafe { self.see(link) };
        let here = *object.key;
        (here, version.next[usize::from(key > here)])
    }

    #[inline]
    unsafe fn node(&self, link: VersionedLink<LINKS>) -> Node<VersionedLink<LINKS>, LINKS> {
        // SAFETY: the caller's promise.
        let (object, version) = unsafe { self.see(link) };
        Node { key: *object.key, next: *version.next, value: *object.value }
    }
}

/// An update while it is being decided. It sees its own changes.
#[doc(hidden)]
pub struct Changing<'s, const LINKS: usize> {
    at: At,
    plan: &'s mut Plan<LINKS>,
}

impl<const LINKS: usize> Changing<'_, LINKS> {
    /// Returns the links of a node that the update has changed.
    #[inline]
    fn own(&self, link: VersionedLink<LINKS>) -> Option<[Option<VersionedLink<LINKS>>; LINKS]> {
        if self.plan.writes.is_empty() {
            return None;
        }
        // SAFETY: the version is the update's own, and not in a chain yet.
        self.plan.place(link).map(|place| *unsafe { self.plan.writes[place].version.as_ref() }.next)
    }

    /// Returns the update's version of a node.
    ///
    /// # Safety
    /// As [`View::step`].
    unsafe fn write(&mut self, link: VersionedLink<LINKS>) -> &mut Write<LINKS> {
        let place = self.plan.place(link).unwrap_or_else(|| {
            // SAFETY: the caller's promise.
            let version = Version::pending(unsafe { self.at.node(link) }.next);
            self.plan.writes.push(Write { link, version, retires: false });
            self.plan.writes.len() - 1
        });
        &mut self.plan.writes[place]
    }
}

impl<const LINKS: usize> View<LINKS> for Changing<'_, LINKS> {
    type Link = VersionedLink<LINKS>;

    #[inline]
    unsafe fn step(&self, link: VersionedLink<LINKS>, side: usize) -> (u64, Option<VersionedLink<LINKS>>) {
        // SAFETY: the caller's promise.
        let seen = unsafe { self.at.step(link, side) };
        self.own(link).map_or(seen, |next| (seen.0, next[side]))
    }

    #[inline]
    unsafe fn toward(&self, link: VersionedLink<LINKS>, key: u64) -> (u64, Option<VersionedLink<LINKS>>) {
        // SAFETY: the caller's promise.
        let (here, next) = unsafe { self.at.toward(link, key) };
        (here, self.own(link).map_or(next, |own| own[usize::from(key > here)]))
    }

    #[inline]
    unsafe fn node(&self, link: VersionedLink<LINKS>) -> Node<VersionedLink<LINKS>, LINKS> {
        // SAFETY: the caller's promise.
        let seen = unsafe { self.at.node(link) };
        Node { next: self.own(link).unwrap_or(seen.next), ..seen }
    }
}

impl<const LINKS: usize> Update<LINKS> for Changing<'_, LINKS> {
    unsafe fn set_next(
        &mut self,
        link: VersionedLink<LINKS>,
        side: usize,
        change: Change<VersionedLink<LINKS>>,
    ) -> Result<(), Conflict> {
        // SAFETY: the caller's promise.
        let write = unsafe { self.write(link) };
        // SAFETY: the version is the update's own, and not in a chain yet.
        unsafe { write.version.as_mut() }.next[side] = change.to;
        Ok(())
    }

    unsafe fn alloc(&mut self, node: Node<VersionedLink<LINKS>, LINKS>) -> VersionedLink<LINKS> {
        let link = VersionedLink::new(node);
        self.plan.made.push(link);
        link
    }

    unsafe fn retire(
        &mut self,
        link: VersionedLink<LINKS>,
        _: &Node<VersionedLink<LINKS>, LINKS>,
    ) -> Result<(), Conflict> {
        // SAFETY: the caller's promise.
        unsafe { self.write(link) }.retires = true;
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::list::{get, insert, remove, retire_all};

    /// Runs `body` with a mechanism and its root. (The traits let callers that know the session's type name it only if
    /// it borrows nothing.)
    fn with<R>(kept: u64, body: impl FnOnce(&'static OverVersioned, VersionedLink<1>) -> R) -> R {
        let leaked = Box::into_raw(Box::new(OverVersioned::keeping(kept)));
        // SAFETY: freed below, when the sessions have ended.
        let over: &'static OverVersioned = unsafe { &*leaked };
        let root = Mechanism::<1>::root(over);
        let result = body(over, root);
        // SAFETY: no other thread uses the list.
        unsafe { retire_all(&mut Mechanism::<1>::session(over), 0, root) };
        // SAFETY: leaked above; its sessions have ended with the body.
        drop(unsafe { Box::from_raw(leaked) });
        result
    }

    /// Runs `one` as an update of one session. Within the first attempt, `other` runs as an update of another session.
    /// Returns the results, and how many attempts have failed.
    fn meet<A, B>(
        keys: &[u64],
        one: impl Fn(&mut Changing<'_, 1>, VersionedLink<1>) -> Result<A, Conflict>,
        other: impl Fn(&mut Changing<'_, 1>, VersionedLink<1>) -> Result<B, Conflict>,
    ) -> (A, B, u64, Vec<u64>) {
        with(2, |over, root| {
            let (mut first, mut second) = (over.session(), over.session());
            keys.iter().for_each(|key| assert!(second.update(&[0], |tx| insert(tx, root, *key, *key))));
            let mut met = None;
            let done = first.update(&[0], |tx| {
                let done = one(tx, root)?;
                met.get_or_insert_with(|| second.update(&[0], |tx| other(tx, root)));
                Ok(done)
            });
            let left = first.read(|view| (0..100).filter(|key| get(view, root, *key).is_some()).collect());
            (done, met.expect("the update was run"), Session::<1>::aborts(&first), left)
        })
    }

    #[test]
    fn versioned_updates_of_different_nodes_both_commit() {
        let met = meet(&[10, 20, 30], |tx, root| insert(tx, root, 11, 0), |tx, root| insert(tx, root, 31, 0));
        assert_eq!(met, (true, true, 0, vec![10, 11, 20, 30, 31]));
    }

    #[test]
    fn a_versioned_update_fails_if_its_node_was_changed() {
        let met = meet(&[10, 20], |tx, root| insert(tx, root, 11, 0), |tx, root| insert(tx, root, 12, 0));
        assert_eq!(met, (true, true, 1, vec![10, 11, 12, 20]));
        // The version of the other node stays in its chain, and goes with the next commit.
        let met = meet(
            &[10, 20],
            |tx, root| Ok((remove(tx, root, 20)?, insert(tx, root, 5, 0)?)),
            |tx, root| insert(tx, root, 6, 0),
        );
        assert_eq!(met, ((Some(20), true), true, 1, vec![5, 6, 10]));
    }

    #[test]
    fn a_versioned_update_fails_if_its_node_was_retired() {
        let met = meet(&[10, 20], |tx, root| insert(tx, root, 11, 0), |tx, root| remove(tx, root, 10));
        assert_eq!(met, (true, Some(10), 1, vec![11, 20]));
        let met = meet(&[10, 20], |tx, root| remove(tx, root, 20), |tx, root| remove(tx, root, 20));
        assert_eq!(met, (None, Some(20), 1, vec![10]));
    }

    /// A closed chain takes no version. What the update had put elsewhere is aborted.
    #[test]
    fn versioned_chains_of_retired_nodes_are_closed() {
        with(1024, |over, _| {
            let mut session: VersionedSession<'_, 1> = over.session();
            let link = VersionedLink::new(Node { key: 1, next: [None], value: 2 });
            let (_guard, _) = session.begin();
            // SAFETY: the node is this thread's, and is retired once.
            unsafe {
                session.update(&[0], |tx| tx.retire(link, &tx.node(link)));
                let late = Version::pending([None]);
                assert!(!link.object().put(late, core::ptr::null()));
                drop(Box::from_raw(late.as_ptr()));
            }
        });
    }

    /// Many commits beside a session that rests: it begins at the kept commits, and the others are freed.
    #[test]
    fn versioned_sessions_that_rest_find_the_list() {
        with(2, |over, root| {
            let (mut rests, mut works) = (over.session(), over.session());
            for key in 0..20 {
                assert!(works.update(&[0], |tx| insert(tx, root, key, key)));
                if key % 7 == 0 {
                    assert_eq!(rests.read(|view| get(view, root, key)), Some(key));
                }
            }
            assert_eq!(rests.update(&[0], |tx| remove(tx, root, 3)), Some(3));
        });
    }

    #[test]
    fn versions_have_half_a_cache_line_and_records_one() {
        assert_eq!((size_of::<Version<1>>(), size_of::<Object<1>>(), size_of::<Record>()), (32, 24, 64));
    }
}
