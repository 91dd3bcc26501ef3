"""Question 6: which precision pays on this machine? What `fedsol doctor` measures."""

from common import save

from fedsol.studies.doctor import diagnose


def main() -> None:
    save("precision", diagnose().as_dict())


if __name__ == "__main__":
    main()
