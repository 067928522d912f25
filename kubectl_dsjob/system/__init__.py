"""The verbs for administrators: install, upgrade and uninstall, and the manifests they apply."""
