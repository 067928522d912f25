"""What devcluster concludes from what the kernel says; no machine is looked at."""

import ipaddress

import pytest

from hack.devcluster import host

ALL = (1 << 41) - 1


def status(bounding: int) -> str:
    return f"Name:\tx\nCapEff:\t0000000000000000\nCapBnd:\t{bounding:016x}\nCapAmb:\t0\n"


def test_a_machine_with_every_capability_lacks_none():
    assert host.missing_capabilities(status(ALL), 40) == ()


def test_a_sandbox_lacks_what_its_bounding_set_lacks():
    assert host.missing_capabilities(status(ALL & ~(1 << 24)), 40) == ("SYS_RESOURCE",)
    assert host.missing_capabilities(status(ALL & ~0b11), 40) == ("CHOWN", "DAC_OVERRIDE")


def test_an_older_kernel_has_fewer_capabilities_and_lacks_none_of_them():
    assert host.missing_capabilities(status((1 << 38) - 1), 37) == ()


def test_a_newer_kernel_has_capabilities_we_have_no_name_for():
    assert host.missing_capabilities(status(ALL), 41) == ("CAP_41",)


def test_no_status_means_nothing_is_known_to_lack():
    assert host.missing_capabilities("", 40) == ()


@pytest.mark.parametrize(
    ("mounts", "version"),
    [
        ("cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n", 2),
        ("tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n", 1),
        (
            (
                "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n"
                "cgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0\n"
                "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
            ),
            1,
        ),
        ("", 1),
    ],
    ids=["unified", "version 1", "hybrid", "none"],
)
def test_the_cgroup_version_is_that_of_the_main_hierarchy(mounts, version):
    assert host.cgroup_version(mounts) == version


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ('PRETTY_NAME="Debian GNU/Linux 12"\nID=debian\n', True),
        ('ID=ubuntu\nID_LIKE="debian"\n', True),
        ('ID="fedora"\n', False),
        ("", False),
    ],
)
def test_debian_is_recognised(release, expected):
    assert host.is_debian(release) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("go version go1.24.3 linux/amd64", (1, 24)),
        ("go version go1.26rc1 linux/arm64", (1, 26)),
        ("command not found", None),
    ],
)
def test_the_go_version_is_read(text, expected):
    assert host.go_version(text) == expected


ROUTES = (
    "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
    "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
    "eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
    "br0\t00001FAC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
)


def test_used_networks_are_the_routes_without_the_default_one():
    assert host.used_networks(ROUTES) == [
        ipaddress.IPv4Network("192.0.2.0/24"),
        ipaddress.IPv4Network("172.31.0.0/16"),
    ]


def test_dockers_network_overlaps_no_route():
    assert host.free_network([]) == ipaddress.IPv4Network("172.31.0.0/16")
    assert host.free_network(host.used_networks(ROUTES)) == ipaddress.IPv4Network("172.30.0.0/16")
    everything_in_172 = [ipaddress.IPv4Network("172.16.0.0/12")]
    assert host.free_network(everything_in_172) == ipaddress.IPv4Network("10.199.0.0/16")
