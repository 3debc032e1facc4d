//! Tasks that wait for a maker, are dropped, or whose wakers panic.

use super::*;

/// A future that is ready after this number of polls.
struct Polls(u32);

impl Future for Polls {
    type Output = ();

    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0 = self.0.saturating_sub(1);
        context.waker().wake_by_ref();
        if self.0 == 0 { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// A waker that counts how often it is woken.
#[derive(Default)]
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// Two tasks request the same key, in an order that rarely happens by chance. The first makes the value. The second
/// waits, and is woken when the value is ready.
#[test]
fn tasks_that_wait_are_woken() {
    let _beside = beside();
    let cache: Cache<u8, u8> = Cache::builder().entries(10);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let (mut waits, mut makes) = (Context::from_waker(&waker), Context::from_waker(Waker::noop()));
    let make = async {
        Polls(2).await;
        10
    };
    let mut first = pin!(cache.get_or_insert_async(1, make));
    assert!(first.as_mut().poll(&mut makes).is_pending());
    let mut second = pin!(cache.get_or_insert_async(1, async { 20 }));
    assert!(second.as_mut().poll(&mut waits).is_pending());
    assert_eq!(woken.0.load(Relaxed), 0);
    assert_eq!(first.as_mut().poll(&mut makes), Poll::Ready(10));
    assert_eq!(woken.0.load(Relaxed), 1);
    assert_eq!(second.as_mut().poll(&mut waits), Poll::Ready(10));
}

/// A waker that panics.
struct Refuses;

impl Wake for Refuses {
    fn wake(self: Arc<Self>) {
        panic!("planned");
    }
}

#[test]
fn wakers_that_panic_keep_no_other_task_asleep() {
    let _beside = beside();
    let cache: Cache<u8, u8> = Cache::builder().entries(10);
    let woken = Arc::new(Woken::default());
    let wakers = [Waker::from(Arc::new(Refuses)), Waker::from(woken.clone()), Waker::from(Arc::new(Refuses))];
    for fails in [false, true] {
        let mut first = Box::pin(cache.get_or_try_insert_async(1, async move {
            Polls(2).await;
            if fails { Err(()) } else { Ok(1) }
        }));
        assert!(first.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let mut waiting: Vec<_> = wakers.iter().map(|_| Box::pin(cache.get_or_insert_async(1, async { 2 }))).collect();
        for (task, waker) in waiting.iter_mut().zip(&wakers) {
            assert!(task.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
        }
        let before = woken.0.load(Relaxed);
        let done = catch_unwind(AssertUnwindSafe(|| first.as_mut().poll(&mut Context::from_waker(Waker::noop()))));
        assert!(done.is_err());
        assert_eq!(woken.0.load(Relaxed), before + 1);
        assert_eq!(block_on(waiting.swap_remove(1)), if fails { 2 } else { 1 });
        cache.clear();
    }
}

#[test]
fn tasks_wait_for_one_maker_and_may_be_dropped() {
    let _beside = beside();
    let cache: Cache<u32, u32> = Cache::builder().entries(1_000);
    let made = AtomicU32::new(0);
    let make = |key: u32| async move {
        Polls(3).await;
        key + 1
    };
    for key in 0..200 {
        thread::scope(|scope| {
            for task in 0..4 {
                let (cache, made) = (&cache, &made);
                scope.spawn(move || {
                    let counted = async {
                        made.fetch_add(1, Relaxed);
                        make(key).await
                    };
                    let mut future = pin!(cache.get_or_insert_async(key, counted));
                    if task == 0 {
                        // The future is dropped after one poll, whether it makes the value, waits, or is ready.
                        let _ = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                        return;
                    }
                    assert_eq!(block_on(future), key + 1);
                });
            }
            // A thread requests the same key without a task.
            scope.spawn(|| {
                let counted = |key: &u32| {
                    made.fetch_add(1, Relaxed);
                    key + 1
                };
                assert_eq!(cache.get_or_insert_with(key, counted), key + 1);
            });
        });
    }
    let made = made.load(Relaxed);
    assert!((200..=400).contains(&made), "{made}: once a key, and once more where the first was dropped");
}

/// Three tasks request a key. One of them is dropped after one of its first four polls; the runs differ in the task and
/// the poll. The others get one value, which is made once, whichever task was to make it, and also if the maker's
/// future panics.
#[test]
fn tasks_are_dropped_at_each_await() {
    let _beside = beside();
    for (polls, dropped, at, panics) in
        (0..5).flat_map(|polls| (0..24).map(move |which| (polls, which % 3, which / 6, which / 3 % 2 == 1)))
    {
        let cache: Cache<u8, usize> = Cache::builder().entries(10);
        let made = AtomicU32::new(0);
        let make = |task: usize| {
            let made = &made;
            async move {
                Polls(polls).await;
                assert!(!panics || task > 0, "planned");
                made.fetch_add(1, Relaxed);
                task
            }
        };
        let mut tasks: Vec<_> = (0..3).map(|task| Some(Box::pin(cache.get_or_insert_async(1, make(task))))).collect();
        let mut values = Vec::new();
        for turn in 0..40 {
            for (number, task) in tasks.iter_mut().enumerate() {
                let Some(future) = task else { continue };
                let mut poll = || future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                match catch_unwind(AssertUnwindSafe(&mut poll)) {
                    _ if turn == at && number == dropped => *task = None,
                    Ok(Poll::Pending) => {}
                    Ok(Poll::Ready(value)) => {
                        values.push(value);
                        *task = None;
                    }
                    Err(_) => *task = None,
                }
            }
        }
        assert!(tasks.iter().all(Option::is_none), "all have ended");
        assert!(values.iter().all(|value| *value == values[0]) && !values.is_empty(), "{values:?}");
        assert_eq!((cache.get(&1), made.load(Relaxed)), (Some(values[0]), 1));
        cache.check_invariants();
    }
}

/// Many keys are made at the same time, and many tasks wait for one of them. Tasks are dropped in the midst of this.
#[test]
fn many_tasks_make_and_wait_at_the_same_time() {
    const KEYS: u64 = 2_000;
    let _beside = beside();
    let cache: Cache<u64, u64> = Cache::builder().shards(1).entries(2 * KEYS as usize);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let (mut waits, mut makes) = (Context::from_waker(&waker), Context::from_waker(Waker::noop()));
    let make = |key: u64| {
        Box::pin(cache.get_or_insert_async(key, async move {
            Polls(2).await;
            key + 1
        }))
    };
    let mut makers: Vec<_> = (0..KEYS).map(make).collect();
    makers.iter_mut().for_each(|maker| assert!(maker.as_mut().poll(&mut makes).is_pending()));
    // The value of key 0 is awaited. Every third task that waits is dropped.
    let mut waiting: Vec<_> = (0..KEYS).map(|_| make(0)).collect();
    for _ in 0..2 {
        waiting.iter_mut().for_each(|task| assert!(task.as_mut().poll(&mut waits).is_pending()));
    }
    let mut number = 0_u32;
    waiting.retain(|_| {
        number += 1;
        !number.is_multiple_of(3)
    });
    // The makers end in another order than they began in.
    for key in (0..KEYS).rev() {
        assert_eq!(makers[key as usize].as_mut().poll(&mut makes), Poll::Ready(key + 1));
    }
    assert_eq!(woken.0.load(Relaxed) as usize, waiting.len(), "those that are left are woken, once each");
    waiting.iter_mut().for_each(|task| assert_eq!(task.as_mut().poll(&mut waits), Poll::Ready(1)));
    assert_eq!(cache.stats().len, KEYS as usize);
}
