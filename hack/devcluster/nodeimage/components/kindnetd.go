package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// kindnetd stands in for kindest/kindnetd (an image, which cannot be pulled) under kind's own
// manifest: CNI config (ptp + host-local + portmap) for this node's podCIDR and
// a route to every other node's podCIDR. IPv4, no masquerade, no NetworkPolicy.
func kindnetd() {
	hostIP := os.Getenv("HOST_IP")
	cfg, err := rest.InClusterConfig()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	c := kubernetes.NewForConfigOrDie(cfg)
	written := ""
	for ; ; time.Sleep(2 * time.Second) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		nodes, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		cancel()
		if err != nil {
			fmt.Println(err)
			continue
		}
		for _, n := range nodes.Items {
			ip := ""
			for _, a := range n.Status.Addresses {
				if a.Type == "InternalIP" && net.ParseIP(a.Address).To4() != nil {
					ip = a.Address
				}
			}
			_, dst, err := net.ParseCIDR(n.Spec.PodCIDR)
			if err != nil || ip == "" {
				continue
			}
			if ip != hostIP {
				if err := netlink.RouteReplace(&netlink.Route{Dst: dst, Gw: net.ParseIP(ip)}); err != nil {
					fmt.Println(n.Name, dst, err)
				}
				continue
			}
			conf := fmt.Sprintf(`{"cniVersion":"0.3.1","name":"kindnet","plugins":[
{"type":"ptp","ipMasq":false,"mtu":1500,"ipam":{"type":"host-local","dataDir":"/run/cni-ipam-state","routes":[{"dst":"0.0.0.0/0"}],"ranges":[[{"subnet":"%s"}]]}},
{"type":"portmap","capabilities":{"portMappings":true}}]}
`, n.Spec.PodCIDR)
			if conf != written {
				tmp := "/etc/cni/net.d/10-kindnet.conflist.temp"
				if err = os.WriteFile(tmp, []byte(conf), 0o644); err == nil {
					err = os.Rename(tmp, "/etc/cni/net.d/10-kindnet.conflist")
				}
				fmt.Println("cni config", n.Spec.PodCIDR, err)
				if err == nil {
					written = conf
				}
			}
		}
	}
}
