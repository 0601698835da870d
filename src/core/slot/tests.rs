use super::*;

fn request(slots: u32, frame_bytes: u64) -> Request {
    Request {
        api: Api::HostFallback,
        kind: SlotKind::Auto,
        slots,
        frame_bytes,
        alignment: 0,
        contiguous: false,
        any_memory: false,
        exports: Vec::new(),
        gpu: GpuChoice { ordinal: 0, uuid: None, context: 0 },
        vulkan: VulkanHost {
            instance: 0,
            physical_device: 0,
            device: 0,
            get_instance_proc_addr: 0,
            usage: 0,
            families: Vec::new(),
        },
        d3d12: D3d12Host { device: 0, creation_mask: 0, visible_mask: 0 },
    }
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    for (slots, frame, part) in [
        (0, 1, "slot_count is 0"),
        (65_537, 1, "slot_count is 65537"),
        (u32::MAX, 1, "slot_count is 4294967295"),
        (1, 0, "frame_bytes is 0"),
        (1, u64::MAX, "frame_bytes is 18446744073709551615"),
        (1, (1 << 40) + 1, "frame_bytes is 1099511627777"),
    ] {
        let error = request(slots, frame).layout().unwrap_err();
        assert!(error.text.contains(part) && error.kind == Kind::InvalidParameter, "{error}");
    }
    for alignment in [3, 65_537, 1 << 31, u64::MAX] {
        let error = Request { alignment, ..request(1, 1) }.layout().unwrap_err();
        assert!(error.text.contains(&format!("alignment is {alignment}")), "{error}");
    }
    let most = Request { contiguous: true, alignment: 1 << 30, ..request(MOST_SLOTS, MOST_BYTES) };
    assert_eq!(most.layout().unwrap().piece_bytes, 1 << 56);
}

#[test]
fn slots_are_whole_units() {
    let layout = request(3, 65_537).layout().unwrap();
    assert_eq!((layout.stride, layout.pieces, layout.piece_bytes), (2 * UNIT, 3, 2 * UNIT));
    let small = Request { alignment: 4096, ..request(1, 1) }.layout().unwrap();
    assert_eq!((small.alignment, small.stride), (UNIT, UNIT));
    let ring = Request { contiguous: true, ..request(3, 65_537) }.layout().unwrap();
    assert_eq!((ring.pieces, ring.piece_bytes), (1, 6 * UNIT));
    let whole = Slot { address: 1 << 20, size: 7 * UNIT, host: 1 << 20, native: 9, ..Slot::default() };
    let slots = ring.slots(&[whole]);
    assert_eq!(slots.len(), 3);
    assert_eq!(slots[2].address, (1 << 20) + 4 * UNIT);
    assert_eq!(slots[2].size, 2 * UNIT);
    assert_eq!((slots[2].gpu_va, slots[2].native, slots[2].native_offset), (0, 9, 4 * UNIT));
    assert_eq!((ring.piece_of(2), layout.piece_of(2)), (0, 2));
    let apart = layout.slots(&[whole, Slot { address: 5 << 20, ..whole }]);
    assert_eq!((apart.len(), apart[1].address, apart[1].size), (2, 5 << 20, 7 * UNIT));
    assert_eq!(apart[1].native_offset, 0);
}

#[test]
fn a_ring_is_as_deep_as_the_window_allows() {
    assert_eq!(ring_depth(None, (32 << 20) - 1, 6, 3), 6);
    assert_eq!(ring_depth(None, 32 << 20, 6, 3), 3);
    assert_eq!(ring_depth(Some(256 << 20), 32 << 20, 4, 2), 4);
    assert_eq!(ring_depth(Some(256 << 20), (32 << 20) + 1, 4, 2), 2);
    assert_eq!(ring_depth(Some(64 << 30), 64 << 20, 8, 3), 8);
    assert_eq!(ring_depth(Some(64 << 30), u64::MAX, u32::MAX, 3), 3);
}
