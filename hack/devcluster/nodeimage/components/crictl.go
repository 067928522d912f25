package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// crictl stands in for cri-tools (which no Go module proxy carries as a program):
// the two calls kind makes, inspecti IMAGE and images, plus ps.
func crictl() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	conn, err := grpc.NewClient("unix:///run/containerd/containerd.sock", grpc.WithTransportCredentials(insecure.NewCredentials()))
	fail(err)
	img, rt := cri.NewImageServiceClient(conn), cri.NewRuntimeServiceClient(conn)
	verb := ""
	if len(os.Args) > 1 {
		verb = os.Args[1]
	}
	switch {
	case verb == "inspecti" && len(os.Args) > 2:
		r, err := img.ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: os.Args[len(os.Args)-1]}})
		fail(err)
		if r.Image == nil {
			fail(fmt.Errorf("no such image %q present", os.Args[len(os.Args)-1]))
		}
		json.NewEncoder(os.Stdout).Encode(map[string]any{"status": map[string]any{"id": r.Image.Id, "repoTags": r.Image.RepoTags, "repoDigests": r.Image.RepoDigests}})
	case verb == "images":
		r, err := img.ListImages(ctx, &cri.ListImagesRequest{})
		fail(err)
		for _, i := range r.Images {
			fmt.Println(i.Id, i.Size, i.RepoTags)
		}
	case verb == "ps":
		r, err := rt.ListContainers(ctx, &cri.ListContainersRequest{})
		fail(err)
		for _, c := range r.Containers {
			fmt.Println(c.Id[:13], c.State, c.Metadata.Name, c.Labels["io.kubernetes.pod.namespace"]+"/"+c.Labels["io.kubernetes.pod.name"])
		}
	default:
		fail(fmt.Errorf("crictl stand-in: inspecti IMAGE | images | ps"))
	}
}
