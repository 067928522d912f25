// runcwrap: runc for a host whose bounding set lacks some capabilities (in a
// sandbox: CAP_SYS_RESOURCE). dockerd asks for every known capability for --privileged
// (and for docker exec into such a container); capset then fails with EPERM.
// Drop what the host does not have from config.json / process.json, and raise
// a negative oomScoreAdj to the current one, then exec the real runc.
package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

var names = []string{"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF", "CHECKPOINT_RESTORE"}

func bounding() map[string]bool {
	b, _ := os.ReadFile("/proc/self/status")
	have := map[string]bool{}
	for _, l := range strings.Split(string(b), "\n") {
		if strings.HasPrefix(l, "CapBnd:") {
			v, _ := strconv.ParseUint(strings.TrimSpace(l[7:]), 16, 64)
			for i, n := range names {
				if v&(1<<uint(i)) != 0 {
					have["CAP_"+n] = true
				}
			}
		}
	}
	return have
}

func fix(p map[string]any, have map[string]bool) {
	if c, ok := p["capabilities"].(map[string]any); ok {
		for k, v := range c {
			if l, ok := v.([]any); ok {
				o := []any{}
				for _, x := range l {
					if s, _ := x.(string); have[s] {
						o = append(o, x)
					}
				}
				c[k] = o
			}
		}
	}
	if o, ok := p["oomScoreAdj"].(json.Number); ok {
		if n, _ := o.Int64(); n < 0 {
			cur, _ := os.ReadFile("/proc/self/oom_score_adj")
			p["oomScoreAdj"] = json.Number(strings.TrimSpace(string(cur)))
		}
	}
	// rlimits above our own hard limits cannot be set without CAP_SYS_RESOURCE
	delete(p, "rlimits")
}

func edit(file string, spec bool, have map[string]bool) {
	b, err := os.ReadFile(file)
	if err != nil {
		return
	}
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.UseNumber()
	var m map[string]any
	if d.Decode(&m) != nil {
		return
	}
	p := m
	if spec {
		p, _ = m["process"].(map[string]any)
	}
	if p == nil {
		return
	}
	fix(p, have)
	if o, err := json.Marshal(m); err == nil {
		os.WriteFile(file, o, 0o600)
	}
}

func main() {
	real := os.Getenv("RUNC_REAL")
	if real == "" {
		real = "/usr/sbin/runc"
	}
	a := os.Args
	have := bounding()
	for i, s := range a {
		val := func() string {
			if j := strings.IndexByte(s, '='); j > 0 {
				return s[j+1:]
			}
			if i+1 < len(a) {
				return a[i+1]
			}
			return ""
		}
		switch {
		case s == "--bundle" || s == "-b" || strings.HasPrefix(s, "--bundle="):
			edit(filepath.Join(val(), "config.json"), true, have)
		case s == "--process" || s == "-p" || strings.HasPrefix(s, "--process="):
			edit(val(), false, have)
		}
	}
	a[0] = real
	syscall.Exec(real, a, os.Environ())
	os.Exit(127)
}
