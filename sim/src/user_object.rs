//! User objects: resources of the program that live as long as the graphs that use them.

use crate::error::{Code, Result};
use crate::handle::Handle;
use crate::work::HostCall;
use crate::world::World;

/// One object, with how its last reference ends it.
pub struct UserObject {
    pub destructor: HostCall,
    pub references: u64,
}

impl World {
    /// `cuUserObjectRetain`.
    pub fn retain_object(&mut self, object: Handle, count: u32) -> Result {
        if count == 0 {
            return Err(Code::INVALID_VALUE);
        }
        self.objects.get_mut(object)?.references += u64::from(count);
        Ok(())
    }

    /// `cuUserObjectRelease`: the destructor runs once the lock is released.
    pub fn release_object(&mut self, object: Handle, count: u32) -> Result {
        let held = self.objects.get_mut(object)?;
        let left = held.references.checked_sub(u64::from(count)).filter(|_| count > 0);
        held.references = left.ok_or(Code::INVALID_VALUE)?;
        if held.references == 0 {
            let held = self.objects.remove(object)?;
            self.after.call(held.destructor);
        }
        Ok(())
    }

    /// `cuGraphRetainUserObject`; with `moves` the graph takes over references of the caller.
    pub fn retain_object_in_graph(
        &mut self,
        graph: Handle,
        object: Handle,
        count: u32,
        moves: bool,
    ) -> Result {
        self.graphs.get(graph)?;
        if !moves {
            self.retain_object(object, count)?;
        } else if count == 0 || self.objects.get(object)?.references < u64::from(count) {
            return Err(Code::INVALID_VALUE);
        }
        self.graphs.get_mut(graph)?.objects.push((object, count));
        Ok(())
    }

    /// `cuGraphReleaseUserObject`.
    pub fn release_object_in_graph(&mut self, graph: Handle, object: Handle, count: u32) -> Result {
        let held = self.graphs.get_mut(graph)?;
        let of_object = held.objects.iter().filter(|(known, _)| *known == object);
        let all: u64 = of_object.map(|(_, count)| u64::from(*count)).sum();
        let left = all.checked_sub(u64::from(count)).ok_or(Code::INVALID_VALUE)?;
        held.objects.retain(|(known, _)| *known != object);
        if left > 0 {
            held.objects.push((object, u32::try_from(left).unwrap_or(u32::MAX)));
        }
        self.release_object(object, count)
    }
}
