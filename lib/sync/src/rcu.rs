//! Read-copy-update: the memory reclamation of the workspace's structures, except those that consist of MV-RLU's or
//! RLU's objects.
//!
//! A structure owns a [`Domain`]. A reader enters a critical section and holds a [`Guard`]. A writer that unlinks a
//! node *retires* it. The domain reclaims the node once every guard that might have seen it has ended. A reader of one
//! domain does not delay reclamation in another.
//!
//! Epoch-based reclamation after Fraser (2004), shaped for many cores:
//!
//! - Each thread slot has one record, in memory of its thread. Entering and leaving are one store each (with
//!   [`Flavour::Epoch`], entering also executes a fence). A [`Reader`], or a structure's session, is a pair of
//!   references, which costs nothing to make, to keep or to forget.
//! - Each thread collects the objects that it retires in a *bag*, and normally reclaims them itself. So memory is
//!   mostly freed by the thread that allocated it. A lock, which is nearly always uncontended, protects the bags. By
//!   this lock any thread can take the garbage of a finished or idle thread.
//! - A domain has no thread of its own: retiring advances the epoch, with at most one barrier per bag. For structures
//!   that become idle and have no thread either, one thread of the process reclaims the rest: see `rest`.
//! - Barriers have two flavours, see [`Flavour`]. A third flavour of reading works with both, see [`QuiescentReader`].
//! - A reader that does not leave stops reclamation. [`Stats`] and [`Domain::with_backlog_limit`] report such a reader.
//!
//! # Usage
//! The example is at [`Domain`]. A thread that uses a structure often keeps a [`Reader`]; [`Domain::pin`] needs none.
//! RCU guarantees only that a node is not freed while a guard may lead to it. The structure itself determines which
//! version a reader sees and which writers exclude each other, by release stores, acquire loads, and a lock for
//! writers.
//!
//! # When not to use it
//! - Long readers: no memory that is retired meanwhile is freed. [`Domain::with_backlog_limit`] reports the backlog,
//!   but nothing bounds it.
//! - Objects with one owner at a time: `Arc` frees them at once.
//! - A writer that must wait for readers often ([`Domain::synchronize`] takes microseconds at least): retire instead.
//!
//! # Why nothing is reclaimed too early
//!
//! *Enter* by R: read the global epoch r (Acquire), publish (r, active) in the record (Release store), barrier B_R,
//! then read the structure. *Leave*: Release store of "inactive". *Retire* by T, inside a guard (which T has entered as
//! R does, with barrier B_T) and after the unlink; when a bag is full T *seals* it with e, the global epoch read inside
//! that guard. *Advance* by A from g to g+1: read g (Acquire), barrier B_A, Acquire loads of all records; if each is
//! inactive or active at g, compare-and-exchange g to g+1 (Release). *Reclaim* a bag that was sealed with e after an
//! Acquire load of the epoch that returned at least e+3.
//!
//! Of a B_R and a B_A, or of two B_A, one comes first. All accesses after the second barrier see all stores before the
//! first. (Both are `SeqCst` fences, or light and heavy membarriers.) With membarriers two B_R are not ordered, and the
//! proof does not need their order.
//!
//! 1. *A successful advance from e+1 comes after T's leave.* If B_A came before B_T, then T, which read e after B_T,
//!    would have read e+1 at least. So B_T came first and A saw T's publication or something newer. T published at most
//!    e. A's advance succeeded, so A saw T's leave or a newer store of that record: T's leave happens before the epoch
//!    becomes e+2. (Every store to a record is a Release, so a newer one carries the leave with it.)
//! 2. *A reader that published r ≥ e+2 does not see the object*: its Acquire load of r read the epoch from the advance
//!    of (1) or from a later one. Each later advance read its predecessor with Acquire. The unlink happens before T's
//!    leave, so it happens before the reader's reads.
//! 3. *A successful advance from e+2 comes after the leave of every R that saw the object.* By 2, r ≤ e+1. If B_A came
//!    before B_R, then the unlink (before T's leave, before A's read of e+2, before B_A) would be seen by R. So B_R
//!    came first, and A saw R's publication or something newer. A's advance succeeded, so A saw R's leave or something
//!    newer: R's leave happens before the epoch becomes e+3, hence before the reclaim. ∎
//!
//! Sealing needs no barrier for this proof. In return a bag waits one epoch longer than in algorithms whose retiring
//! threads execute a fence.
//!
//! A record that is made after A walked the table counts as one whose publication A did not see, since R creates its
//! record before B_R. The end of a thread happens before the begin of the next thread with the same slot. Likewise, the
//! end of a claim to a record happens before the next claim. So a record has one owner at a time. Code that runs after
//! its thread has returned the slot detects this ([`Reader::is_mine`]) and enters by the record of the thread's present
//! slot. If the slot's former owner forgot a guard, the guard stays counted and stops the epoch. This delays
//! reclamation, and has no other effect.

mod backlog;
mod domain;
mod garbage;
mod held;
mod owned;
mod quiescent;
mod reader;
mod record;
mod records;
#[cfg(not(loom))]
mod rest;
#[cfg(not(loom))]
mod turn;

debug_by_name! { Guard OwnedGuard QuiescentReader Reader }

pub use domain::{Domain, Flavour, Stats};
pub use held::{Held, Keeper};
pub use owned::OwnedGuard;
pub use quiescent::QuiescentReader;
pub use reader::{Guard, Reader};
#[cfg(not(loom))]
pub use rest::Owner;
