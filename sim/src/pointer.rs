//! What is known of a pointer: the attributes of `cuPointerGetAttribute`.

use crate::error::{Code, Result};
use crate::memory::{Allocation, Kind};
use crate::world::World;

/// A value in the width that its attribute has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    Byte(u8),
    Word(u32),
    Long(u64),
}

fn of_allocation(held: &Allocation, address: u64, number: u32) -> Result<Value> {
    let host = held.kind.is_host();
    let has_host_side = host || held.kind == Kind::Managed;
    Ok(match number {
        1 => Value::Long(held.context),
        2 => Value::Word(if host { 1 } else { 2 }),
        3 => Value::Long(address),
        4 if has_host_side => Value::Long(address),
        4 => return Err(Code::INVALID_VALUE),
        6 => Value::Byte(u8::from(held.synchronous)),
        7 => Value::Long(held.id),
        8 => Value::Byte(u8::from(held.kind == Kind::Managed)),
        9 => Value::Word(held.device),
        10 => Value::Byte(u8::from(held.kind == Kind::Device)),
        11 => Value::Long(held.base),
        12 => Value::Long(held.bytes),
        13 => Value::Byte(1),
        14 => Value::Long(0),
        15 => Value::Byte(0),
        16 => Value::Word(3),
        17 => match held.kind {
            Kind::Pool(pool) => Value::Long(pool),
            _ => Value::Long(0),
        },
        18 => Value::Long(held.bytes),
        19 => Value::Long(held.base),
        20 => Value::Long(held.id),
        21 => Value::Byte(0),
        _ => return Err(Code::INVALID_VALUE),
    })
}

impl World {
    /// One attribute; `INVALID_VALUE` for memory that the device does not know.
    pub fn pointer_attribute(&self, address: u64, number: u32) -> Result<Value> {
        of_allocation(self.memory.find(address).ok_or(Code::INVALID_VALUE)?, address, number)
    }

    /// As `cuPointerGetAttributes` gives it, where unknown memory is no error and reads as zeroes.
    pub fn pointer_attribute_or_zero(&self, address: u64, number: u32) -> Result<Value> {
        match self.pointer_attribute(address, number) {
            Err(_) => Ok(match number {
                2 | 16 => Value::Word(0),
                9 => Value::Word((-2i32) as u32),
                6 | 8 | 10 | 13 | 15 | 21 => Value::Byte(0),
                1..=20 => Value::Long(0),
                _ => return Err(Code::INVALID_VALUE),
            }),
            known => known,
        }
    }

    /// `cuPointerSetAttribute`: synchronous memory operations are the only one that can be set.
    pub fn set_pointer_attribute(&mut self, address: u64, number: u32, value: u32) -> Result {
        if number != 6 {
            return Err(Code::INVALID_VALUE);
        }
        self.memory.find_mut(address).ok_or(Code::INVALID_VALUE)?.synchronous = value != 0;
        Ok(())
    }
}
