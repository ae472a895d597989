//! The memory pools of a process: who made them, what is in use, and what they may keep.

use rustc_hash::FxHashMap;

use super::held_memory::HeldMemory;

/// Pools of one process that are followed one by one.
const POOLS_MAX: usize = 1 << 10;
/// More than a host has; ordinals come from the process.
const DEVICES_MAX: usize = 64;

/// The pool that an allocation is from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PoolOf {
    /// Memory of no pool, or of no kind that is followed by pool.
    #[default]
    Nothing,
    /// The low half of the handle that the call named.
    Handle(u32),
    /// The current one of the device with that ordinal, if it is known.
    Device(Option<u32>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolChange {
    /// The most that it may hold, if it is limited.
    Created(Option<u64>),
    Destroyed,
    /// What it may keep of what is freed.
    Keeps(u64),
    Trimmed,
    /// What it had taken from the device when the program asked.
    Reserved(u64),
    /// The own pool of the device with that ordinal, if it is known: calls without a pool allocate from it.
    IsDefault(Option<u32>),
    /// It is the one that calls without a pool allocate from on the device.
    FoundCurrent(Option<u32>),
    /// Calls without a pool allocate from this one on the device from here on.
    IsCurrent(Option<u32>),
}

#[derive(Clone, Debug, Default)]
pub struct PoolMemory {
    /// 0 if no call named it.
    pub handle: u64,
    /// It is a device's own.
    pub is_default: bool,
    /// The ordinal of the device, where a call said whose own or current pool it is.
    pub device: Option<u32>,
    pub allocated: HeldMemory,
    pub used: HeldMemory,
    pub peak_bytes: u64,
    pub peak_ns: u64,
    pub limit_bytes: Option<u64>,
    pub keeps_bytes: Option<u64>,
    /// The last that is known, and the most.
    pub reserved_bytes: Option<u64>,
    pub reserved_most_bytes: Option<u64>,
    pub trims: u64,
    pub is_destroyed: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Pools {
    all: Vec<PoolMemory>,
    /// By the low half of the handle.
    by_low: FxHashMap<u32, usize>,
    /// Of each device that is known, and of those that are not.
    default: FxHashMap<Option<u32>, usize>,
    current: FxHashMap<Option<u32>, usize>,
    /// Calls for pools that are not followed, because there were too many.
    pub beyond: u64,
}

impl PoolMemory {
    /// `own of device 0`, or its handle.
    pub fn name(&self) -> String {
        match (self.handle, self.device) {
            (_, Some(device)) if self.is_default => format!("own of device {device}"),
            _ if self.is_default => "own of a device".to_owned(),
            (0, _) => "(without a name)".to_owned(),
            (handle, _) => format!("{handle:#x}"),
        }
    }
}

impl Pools {
    pub fn iter(&self) -> impl Iterator<Item = &PoolMemory> {
        self.all.iter()
    }

    /// Returns the number of the pool and what it has reserved, if that is the change.
    pub fn change(&mut self, handle: u64, change: PoolChange) -> Option<(u32, u64)> {
        if handle == 0 {
            return None;
        }
        let low = handle as u32;
        match change {
            PoolChange::Created(_) => {
                self.by_low.remove(&low);
            }
            PoolChange::IsDefault(device)
                if self.by_low.len() < 2 * POOLS_MAX && !self.by_low.contains_key(&low) =>
            {
                let index = self.own(device)?;
                self.by_low.insert(low, index);
            }
            PoolChange::FoundCurrent(device)
                if self.by_low.len() < 2 * POOLS_MAX && !self.by_low.contains_key(&low) =>
            {
                let index = self.number(PoolOf::Device(device)).checked_sub(1)?;
                self.by_low.insert(low, index as usize);
            }
            _ => {}
        }
        let index = self.named(handle)?;
        let pool = self.all.get_mut(index)?;
        if pool.handle == 0 {
            pool.handle = handle;
        }
        match change {
            PoolChange::Created(limit) => pool.limit_bytes = limit,
            PoolChange::Destroyed => {
                pool.is_destroyed = true;
                self.by_low.remove(&low);
                self.current.retain(|_, current| *current != index);
            }
            PoolChange::Keeps(bytes) => pool.keeps_bytes = Some(bytes),
            PoolChange::Trimmed => pool.trims += 1,
            PoolChange::Reserved(bytes) => {
                pool.reserved_bytes = Some(bytes);
                pool.reserved_most_bytes = pool.reserved_most_bytes.max(Some(bytes));
                return Some((u32::try_from(index + 1).ok()?, bytes));
            }
            PoolChange::IsDefault(_) | PoolChange::FoundCurrent(_) => {}
            PoolChange::IsCurrent(device) => {
                pool.device = pool.device.or(device);
                if self.current.len() < DEVICES_MAX || self.current.contains_key(&device) {
                    self.current.insert(device, index);
                }
            }
        }
        None
    }

    /// The number of the pool that an allocation is from, counted from 1; 0 if it is not followed.
    pub fn number(&mut self, from: PoolOf) -> u32 {
        let index = match from {
            PoolOf::Nothing => None,
            PoolOf::Handle(low) => self.named(low.into()),
            PoolOf::Device(device) => {
                let current = self.current.get(&device).or_else(|| self.current.get(&None));
                current.copied().or_else(|| self.own(device))
            }
        };
        index.and_then(|index| u32::try_from(index + 1).ok()).unwrap_or(0)
    }

    pub fn allocated(&mut self, number: u32, bytes: u64, at_ns: u64) {
        if let Some(pool) = self.of_number(number) {
            pool.allocated.add(HeldMemory::one(bytes));
            pool.used.add(HeldMemory::one(bytes));
            if pool.used.bytes > pool.peak_bytes {
                (pool.peak_bytes, pool.peak_ns) = (pool.used.bytes, at_ns);
            }
        }
    }

    /// What the pool with that number has in use.
    pub(super) fn used(&self, number: u32) -> Option<u64> {
        self.all.get((number as usize).checked_sub(1)?).map(|pool| pool.used.bytes)
    }

    pub fn freed(&mut self, number: u32, bytes: u64) {
        if let Some(pool) = self.of_number(number) {
            pool.used.remove(HeldMemory::one(bytes));
        }
    }

    fn of_number(&mut self, number: u32) -> Option<&mut PoolMemory> {
        self.all.get_mut((number as usize).checked_sub(1)?)
    }

    /// The pool of a handle, or of its low half, which is new if it was not named before.
    fn named(&mut self, handle: u64) -> Option<usize> {
        if let Some(index) = self.by_low.get(&(handle as u32)) {
            return Some(*index);
        }
        let index = self.add(PoolMemory::default())?;
        self.by_low.insert(handle as u32, index);
        Some(index)
    }

    /// A device's own pool. Where no call says of which device, all own pools are one.
    fn own(&mut self, device: Option<u32>) -> Option<usize> {
        if let Some(index) = self.default.get(&device) {
            return Some(*index);
        }
        let device = device.filter(|_| self.default.len() < DEVICES_MAX);
        let index = self.add(PoolMemory { is_default: true, device, ..PoolMemory::default() })?;
        self.default.insert(device, index);
        Some(index)
    }

    fn add(&mut self, pool: PoolMemory) -> Option<usize> {
        if self.all.len() >= POOLS_MAX {
            self.beyond += 1;
            return None;
        }
        self.all.push(pool);
        Some(self.all.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANDLE: u64 = 0x7f00_1234_5678;
    const LOW: u32 = 0x1234_5678;

    #[test]
    fn allocations_are_of_the_named_pool_or_of_the_current_one() {
        let mut pools = Pools::default();
        let own = pools.number(PoolOf::Device(Some(0)));
        pools.allocated(own, 100, 1);
        pools.change(HANDLE, PoolChange::Created(Some(1 << 30)));
        let named = pools.number(PoolOf::Handle(LOW));
        pools.allocated(named, 7, 2);
        pools.change(HANDLE, PoolChange::IsCurrent(Some(0)));
        assert_eq!(pools.number(PoolOf::Device(Some(0))), named);
        // Of another device, and of one that is not known.
        let others = [PoolOf::Device(Some(1)), PoolOf::Device(None)].map(|from| pools.number(from));
        assert!(others.iter().all(|other| ![own, named].contains(other)) && others[0] != others[1]);
        pools.allocated(named, 20, 3);
        pools.freed(named, 7);
        pools.change(0x10, PoolChange::IsDefault(Some(0)));
        pools.change(0x10, PoolChange::Keeps(u64::MAX));
        pools.change(HANDLE, PoolChange::Destroyed);
        assert_eq!(pools.number(PoolOf::Device(Some(0))), own);
        let found: Vec<_> = pools
            .iter()
            .filter(|pool| pool.allocated.count > 0)
            .map(|pool| (pool.handle, pool.is_default, pool.used.bytes, pool.peak_bytes, pool.limit_bytes))
            .collect();
        assert_eq!(found, [(0x10, true, 100, 100, None), (HANDLE, false, 20, 27, Some(1 << 30))]);
        assert_eq!(
            pools.iter().map(|pool| pool.keeps_bytes).collect::<Vec<_>>(),
            [Some(u64::MAX), None, None, None]
        );
    }

    #[test]
    fn pool_that_a_device_has_now_is_the_one_that_was_allocated_from() {
        let mut pools = Pools::default();
        let own = pools.number(PoolOf::Device(Some(0)));
        pools.change(0x10, PoolChange::FoundCurrent(Some(0)));
        assert_eq!(pools.number(PoolOf::Handle(0x10)), own);
        pools.change(HANDLE, PoolChange::Created(None));
        pools.change(HANDLE, PoolChange::IsCurrent(Some(0)));
        pools.change(HANDLE, PoolChange::FoundCurrent(Some(0)));
        let current = [PoolOf::Device(Some(0)), PoolOf::Handle(LOW)].map(|from| pools.number(from));
        assert!(current[0] == current[1] && current[0] != own);
        assert_eq!(pools.iter().map(|pool| pool.handle).collect::<Vec<_>>(), [0x10, HANDLE]);
    }

    #[test]
    fn handle_that_is_given_again_is_another_pool() {
        let mut pools = Pools::default();
        for _ in 0..2 {
            pools.change(HANDLE, PoolChange::Created(None));
            let number = pools.number(PoolOf::Handle(LOW));
            pools.allocated(number, 5, 1);
            pools.change(HANDLE, PoolChange::Trimmed);
            pools.change(HANDLE, PoolChange::Reserved(32));
            pools.change(HANDLE, PoolChange::Reserved(8));
            pools.change(HANDLE, PoolChange::Destroyed);
        }
        let of = |pool: &PoolMemory| {
            (pool.used.bytes, pool.trims, pool.reserved_bytes, pool.reserved_most_bytes, pool.is_destroyed)
        };
        assert_eq!(pools.iter().map(of).collect::<Vec<_>>(), [(5, 1, Some(8), Some(32), true); 2]);
    }

    #[test]
    fn a_million_pools_are_counted_and_not_all_kept() {
        let mut pools = Pools::default();
        for handle in 1..=1_000_000 {
            pools.change(handle, PoolChange::Created(None));
            let number = pools.number(PoolOf::Handle(handle as u32));
            pools.allocated(number, 1, 1);
        }
        assert_eq!((pools.all.len(), pools.by_low.len()), (POOLS_MAX, POOLS_MAX));
        assert!(pools.beyond > 900_000);
    }
}
